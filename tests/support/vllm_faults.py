"""Faults put into the process of the rank that talks, from the process of the test."""

from __future__ import annotations

import importlib
from typing import Any

OURS = "sidedraft.integrations.vllm."
STEPS = (
    OURS + "talker:read_batch",
    OURS + "talker:progress",
    OURS + "talker:Talker._checked",
    OURS + "stating:Stater.submissions",
    OURS + "requests:RequestTable.find",
    "sidedraft.verifier.drafter:Drafter.submit",
    "sidedraft.verifier.pending:Pending.result",
    OURS + "talker:Talker._deliver",
    OURS + "talker:Talker._tell_scheduler",
    OURS + "requests:RequestTable.doubt",
    "sidedraft.verifier.drafter:Drafter.count_fillers",
)
"""Every step of the talk, in order, and of what follows a fault: `module:name`."""

_raised: dict[str, int] = {}


def fault(place: str, times: int) -> None:
    """The next `times` calls of what is at `place` raise; then it is whole again."""
    module, _, name = place.partition(":")
    owner: Any = importlib.import_module(module)
    *path, last = name.split(".")
    for part in path:
        owner = getattr(owner, part)
    whole = getattr(owner, last)
    left = times

    def broken(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        left -= 1
        _raised[place] = _raised.get(place, 0) + 1
        if left <= 0:
            setattr(owner, last, whole)
        raise RuntimeError(f"fault put into {place}")

    setattr(owner, last, broken)


def put(llm: Any, places: list[str], times: int) -> list[bool]:
    """`fault` in the worker that talks. Gives for each rank whether it is the one."""
    found: list[bool] = llm.collective_rpc(_put, args=(places, times))
    return found


def raised(llm: Any) -> dict[str, int]:
    """How often each place has failed so far."""
    found: dict[str, int] = llm.collective_rpc(_look)[0]
    return found


def _look(worker: Any) -> dict[str, int]:
    return _raised


def _put(worker: Any, places: list[str], times: int) -> bool:
    if worker.model_runner.speculator._talker is None:
        return False
    for place in places:
        fault(place, times)
    return True
