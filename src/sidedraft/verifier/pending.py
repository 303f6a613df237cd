"""The result of a submit that may still be under way."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sidedraft.verifier.shared import Shared
from sidedraft.verifier.state.outcome import Draft, NoDraft, Outcome, Reason
from sidedraft.verifier.state.step import Step
from sidedraft.verifier.submission import Submission
from sidedraft.wire.limits import MAX_DEPTH


class Pending:
    """Drafts of one step. Both ways to take them wait at most until `deadline`, and may be used again."""

    def __init__(self, shared: Shared, step: Step, submissions: Sequence[Submission]) -> None:
        self._shared = shared
        self._step = step
        self._fillers = [int(one.next_token) for one in submissions]
        self._wanted = [int(one.depth) for one in submissions]
        self._written = False

    @property
    def deadline(self) -> float:
        """Absolute, by the drafter's clock; counted from the beginning of submit, copies included."""
        return self._step.deadline

    @property
    def settled(self) -> bool:
        """Every outcome is there; `result` will not wait."""
        return self._step.settled

    @property
    def times(self) -> dict[str, float]:
        """Seconds by stage (docs/verifier.md names them); complete once settled."""
        return dataclasses.asdict(self._step.times)

    def result(self, deadline: float | None = None) -> dict[Hashable, Outcome]:
        """What became of each request. Waits on the host; never raises for what the server does.

        Args:
            deadline: wait no longer than this (absolute, by the drafter's clock); only an earlier one than
                the step's own has an effect. What is not there by then is late.
        """
        return self._take(deadline, MAX_DEPTH)

    def write_into(
        self, tokens: Tensor, valid: Tensor, stream: AbstractContextManager[Any] | None = None
    ) -> None:
        """Put the drafts into tensors, one row a submission in their order.

        Where there is no draft, and behind a short one, `tokens` gets the request's own anchor (a valid id)
        and `valid` False. On the CPU this waits as `result` does.

        Args:
            tokens: int64 [B, K], on any device.
            valid: bool [B, K], True where `tokens` holds a draft token.
            stream: for another device, the stream to copy on (`torch.Stream` is such a context).

        Raises:
            ValueError: a tensor has another dtype or shape.
        """
        count = len(self._fillers)
        for name, tensor, dtype in (("tokens", tokens, torch.int64), ("valid", valid, torch.bool)):
            if tensor.dtype is not dtype or tensor.dim() != 2 or tensor.shape[0] != count:
                found = f"{tensor.dtype} {list(tensor.shape)}"
                raise ValueError(f"{name}: {found} is not allowed; expected {dtype} [{count}, K]")
        if tokens.shape != valid.shape:
            raise ValueError(
                f"valid: shape {list(valid.shape)} is not allowed; expected {list(tokens.shape)}, as tokens"
            )
        width = tokens.shape[1]
        ids = np.empty((count, width), dtype=np.int64)
        ids[:] = np.asarray(self._fillers, dtype=np.int64).reshape(count, 1)
        mask = np.zeros((count, width), dtype=np.bool_)
        lacking = sum(min(width, depth) for depth in self._wanted)
        for row, outcome in enumerate(self._take(None, width).values()):
            if isinstance(outcome, Draft):
                used = min(width, len(outcome.tokens))
                ids[row, :used] = outcome.tokens[:used]
                mask[row, :used] = True
                lacking -= used
        begun = self._shared.clock()
        with nullcontext() if stream is None else stream:
            tokens.copy_(torch.from_numpy(ids), non_blocking=stream is not None)
            valid.copy_(torch.from_numpy(mask), non_blocking=stream is not None)
        self._count(lacking, self._shared.clock() - begun)

    def _take(self, deadline: float | None, width: int) -> dict[Hashable, Outcome]:
        """`result`, for an engine that uses `width` tokens of a draft at most."""
        step = self._step
        until = step.deadline if deadline is None else min(step.deadline, deadline)
        if not step.settled:
            self._shared.wait(lambda: step.settled, until)
        with self._shared.changed:
            self._shared.session.ladder.expire(self._shared.clock(), step)
            if width:
                self._shared.session.figures.take(step, width)
            outcomes = [NoDraft(Reason.CLOSED) if outcome is None else outcome for outcome in step.outcomes]
        return dict(zip(step.keys, outcomes, strict=True))

    def _count(self, fillers: int, copying: float) -> None:
        """Once for a step, however often it is written."""
        if self._written:
            return
        self._written = True
        with self._shared.changed:
            figures = self._shared.session.figures
            figures.counters.fillers += fillers
            if self._step.asks:
                figures.stages.observe("tokens_h2d", copying)
