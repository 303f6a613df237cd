"""One step's questions and what has become of them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from sidedraft.verifier.state.outcome import Draft, NoDraft, Outcome, Reason
from sidedraft.wire.batch import Timings

if TYPE_CHECKING:
    from sidedraft.verifier.state.request import RequestState

LATENESS = frozenset({Reason.LATE, Reason.EXPIRED})
SILENT = frozenset({Reason.LOST, Reason.SUPERSEDED, Reason.RELEASED, Reason.CLOSED, Reason.OPEN})
"""Ends of a question that say nothing about how fast the server is."""


class Verdict(Enum):
    """What a settled step says to the breaker."""

    GOOD = "good"
    ALL_LATE = "all late"
    NOTHING = "nothing"


@dataclass(slots=True, eq=False)
class Times:
    """Where a step's time went, in seconds; the names are the field's."""

    request_plan: float = 0.0
    """Checks and bookkeeping in `submit`."""
    context_d2h: float = 0.0
    """Rows converted and copied into staging, waits for `ready` and for free staging included."""
    serialize: float = 0.0
    """Headers encoded."""
    rpc_roundtrip: float = 0.0
    """From the first message handed to the transport until the step was settled."""
    server_queue: float = 0.0
    server_ingest: float = 0.0
    server_propose: float = 0.0
    server_total: float = 0.0
    client_total: float = 0.0
    """From submit until the step was settled."""

    def add_server(self, timings: Timings) -> None:
        """The server's word on one message of answers; the slowest counts."""
        self.server_queue = max(self.server_queue, timings.queue / 1e6)
        self.server_ingest = max(self.server_ingest, timings.ingest / 1e6)
        self.server_propose = max(self.server_propose, timings.propose / 1e6)
        self.server_total = max(self.server_total, timings.server / 1e6)


class Step:
    """Outcomes of one submit, in the order of its submissions."""

    def __init__(self, keys: Sequence[Hashable], begun: float, deadline: float) -> None:
        self.keys = list(keys)
        self.begun = begun
        self.deadline = deadline
        """Absolute; nobody waits beyond it."""
        self.outcomes: list[Outcome | None] = [None] * len(self.keys)
        self.asks: list[Ask] = []
        self.times = Times()
        self.sent_at: float | None = None
        self.taken = 0
        """Tokens of each draft that the engine has been given, at most; 0: it has not taken the result."""
        self._waiting = 0
        self._late = 0
        self._answered = 0

    @property
    def settled(self) -> bool:
        """Nothing is waited for any more; every outcome is there."""
        return self._waiting == 0

    def put(self, index: int, outcome: Outcome) -> None:
        """The outcome of an entry that asks nothing."""
        self.outcomes[index] = outcome

    def add(self, ask: Ask) -> None:
        """One more entry waits for the server."""
        self.asks.append(ask)
        self._waiting += 1

    def resolve(self, index: int, outcome: Outcome) -> None:
        """The end of one question."""
        self.outcomes[index] = outcome
        self._waiting -= 1
        reason = outcome.reason if isinstance(outcome, NoDraft) else None
        if reason in LATENESS:
            self._late += 1
        elif reason not in SILENT:
            self._answered += 1

    def verdict(self) -> Verdict:
        if self._answered:
            return Verdict.GOOD
        return Verdict.ALL_LATE if self._late else Verdict.NOTHING


@dataclass(slots=True, eq=False)
class Ask:
    """A question under way: a draft for one request, from one base."""

    request: RequestState
    generation: int
    number: int
    end: int
    """The base: the anchor's position."""
    anchor: int
    """The token there."""
    depth: int
    asked_at: float
    deadline: float
    step: Step | None
    """None for a probe."""
    index: int = 0
    """Of the entry in its step."""
    waiting: bool = True
    """Somebody still waits for it; never for a probe."""

    def revoke(self, why: NoDraft) -> None:
        """The request moves on before the result was taken: a draft that is there has lost its base."""
        if self.step is not None and isinstance(self.step.outcomes[self.index], Draft):
            self.step.outcomes[self.index] = why
