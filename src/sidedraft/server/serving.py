"""The engine thread, from its first import to its last step."""

from __future__ import annotations

from typing import Any

from sidedraft.server.banner import banner
from sidedraft.server.ending import STOPPED, Ending, Stopped
from sidedraft.server.engine_loop import EngineLoop
from sidedraft.server.facts import server_facts, status_facts
from sidedraft.server.io_loop import IoLoop
from sidedraft.server.loader import Loaded, load, name_of
from sidedraft.server.parts import Parts
from sidedraft.server.phases import Phase
from sidedraft.server.quotas import Quotas
from sidedraft.server.reception import Reception
from sidedraft.server.schedule import Schedule, StepBounds
from sidedraft.server.service import Service
from sidedraft.server.smoke import smoke_test
from sidedraft.server.status import numbers

DRAIN = 5.0
"""Seconds in which what is waiting is finished after a stop."""


def run_engine(parts: Parts, io: IoLoop, address: str, http: str) -> None:
    """Load, try, open for sessions, and serve until told to stop.

    Raises `Stopped` when told to before, and `StartError` for what the operator has to change.
    """
    settings, report = parts.settings, parts.report

    def check() -> None:
        if parts.stop_engine.is_set():
            raise Stopped

    def smoke_progress(done: int, total: int) -> None:
        check()
        report.progress("smoke test", done, total)

    loaded = load(settings, report, check)
    if not settings.skip_smoke_test:
        parts.lifecycle.enter(Phase.SMOKE)
        smoke_test(loaded.engine, loaded.draft, smoke_progress)
    loop = EngineLoop(
        loaded.engine,
        Schedule(StepBounds.of(loaded.engine.plan, settings.engine().ingest_slice)),
        parts.inbox,
        io.reply,
    )
    view = _View(loop)
    parts.board.facts |= status_facts(settings, loaded)
    parts.board.engine = view
    reception = Reception(
        loaded.engine.sequencer(held=settings.wire().held),
        Quotas(waiting=settings.session_bytes, rows=settings.session_rows),
    )
    facts = server_facts(settings, loaded, parts.epoch)
    io.open(Service(facts, reception), view)
    if not parts.lifecycle.enter(Phase.READY):
        raise Stopped
    report.note(_banner(parts, loaded, address, http))
    if settings.exit_after_load:
        parts.endings.put(Ending(STOPPED, "loaded, as asked"))
    loop.run(parts.stop_engine, DRAIN)


def _banner(parts: Parts, loaded: Loaded, address: str, http: str) -> str:
    draft = loaded.draft
    return banner(
        parts.settings,
        family=draft.family.name,
        device=str(draft.device),
        dtype=name_of(draft.dtype),
        address=address,
        http=http,
    )


class _View:
    """The engine as status and pulses see it; any thread may look."""

    def __init__(self, loop: EngineLoop) -> None:
        self._loop = loop
        self._smoke = loop.engine.stats().counters
        """What the smoke test did is nobody's traffic."""

    @property
    def failures(self) -> int:
        return self._loop.failures

    @property
    def step_began(self) -> float | None:
        return self._loop.step_began

    def queued(self) -> int:
        return self._loop.queued

    def progress(self) -> int:
        return self._loop.engine.stats().counters.steps

    def counts(self) -> dict[str, Any]:
        stats = numbers(self._loop.engine.stats())
        before = numbers(self._smoke)
        traffic = {name: count - before[name] for name, count in stats.pop("counters").items()}
        return {**traffic, **self._loop.counts(), **stats}
