"""One batch of advances between being given to the device and being answered."""

from __future__ import annotations

from dataclasses import dataclass, field

from sidedraft.device import Mark
from sidedraft.engine.ingest import Written
from sidedraft.engine.query import Proposed
from sidedraft.engine.request import Request
from sidedraft.engine.work import Work
from sidedraft.wire.advance import Answer, Outcome
from sidedraft.wire.errors import WireError


@dataclass(slots=True, eq=False)
class Entry:
    """A work, the answer that is taking shape, and the request it was applied to (None when refused)."""

    work: Work
    answer: Answer
    request: Request | None = None
    touched: range = range(0)
    """Blocks that may have become full."""

    def refuse(self, error: WireError) -> None:
        answer = self.answer
        answer.outcome, answer.error, answer.detail = Outcome.REFUSED, error.code.value, error.detail

    @property
    def refused(self) -> bool:
        return self.answer.outcome is Outcome.REFUSED


@dataclass(slots=True, eq=False)
class InFlight:
    """A launched batch. Times are durations on the host, in seconds."""

    number: int
    entries: list[Entry] = field(default_factory=list)
    written: list[Written] = field(default_factory=list)
    proposed: list[Proposed] = field(default_factory=list)
    mark: Mark | None = None
    ingest_seconds: float = 0.0
    propose_seconds: float = 0.0

    @property
    def ready(self) -> bool:
        """Whether `Engine.finish` would return without waiting for the device."""
        return self.mark is None or self.mark.reached()

    @property
    def proposals(self) -> int:
        """Proposals of this batch, over all its forwards."""
        return sum(len(proposed.tickets) for proposed in self.proposed)
