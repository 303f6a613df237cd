"""One request as the ladder sees it: closed, open, perhaps behind, released."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from enum import StrEnum

from sidedraft.verifier.state.backoff import Backoff
from sidedraft.verifier.state.outcome import NoDraft, Reason
from sidedraft.verifier.state.record import TokenRecord
from sidedraft.verifier.state.step import Ask


class Phase(StrEnum):
    CLOSED = "closed"
    """The server does not know it, or what it knows is uncertain: the next advance opens it."""
    OPEN = "open"
    """Advances follow each other in one generation."""
    RELEASED = "released"
    """Over; the server may not have been told yet."""


class RequestState:
    """Numbers and times of one request; the ladder decides, this keeps them consistent."""

    def __init__(
        self, key: Hashable, wire_id: int, record: TokenRecord, context_key: bytes, private: bool
    ) -> None:
        self.key = key
        self.wire_id = wire_id
        self.record = record
        self.context_key = context_key
        self.private = private
        self.phase = Phase.CLOSED
        self.why_closed = NoDraft(Reason.LOST)
        """What a step says of it while it waits to be opened."""
        self.session: int | None = None
        """In which it was opened last."""
        self.generation = -1
        """Of the latest opening; -1 before the first."""
        self.missed = False
        """Something was submitted that the server was never sent."""
        self.sent = -1
        """Latest number handed out in this generation."""
        self.answered = -1
        """Greatest number answered in this generation."""
        self.behind = False
        self.queued = 0
        """Bulk messages of this request that wait for credit."""
        self.ask: Ask | None = None
        """The latest question; kept after its deadline, so that its late answer is recognised."""
        self.latest: Ask | None = None
        """The question of the latest submission, if it asked one."""
        self.retry_at = 0.0
        """Not opened before; also when the server is told of a release at the latest."""
        self.refusals: Backoff | None = None
        """Waits after refusals in a row; None when there was none since the last draft."""
        self._under_way: deque[tuple[int, int, float]] = deque()
        self._waiting_since = 0.0

    @property
    def open(self) -> bool:
        return self.phase is Phase.OPEN

    @property
    def lost(self) -> bool:
        """Its next opening is not its beginning: the server has to take it up by its prefix."""
        return not self.open and (self.missed or self.generation >= 0)

    @property
    def in_step(self) -> bool:
        """The server has answered everything: its committed end is ours."""
        return self.answered == self.sent

    def begin(self, session: int) -> None:
        """The next advance opens the request, in a new generation."""
        self.phase = Phase.OPEN
        self.session = session
        self.generation += 1
        self.sent = self.answered = -1
        self.behind = self.missed = False
        self._under_way.clear()

    def hand_out(self, now: float, end: int) -> None:
        """The next number was given to an advance up to `end`."""
        if self.in_step:
            self._waiting_since = now
        self.sent += 1
        self._under_way.append((self.sent, end, now))

    def take_answer(self, now: float, number: int) -> int:
        """Everything up to `number` is applied on the server; returns the end it must have reached.

        The caller has checked `answered < number <= sent`.
        """
        end = -1
        while self._under_way and self._under_way[0][0] <= number:
            end = self._under_way.popleft()[1]
        self.answered = number
        self._waiting_since = now
        return end

    def fall_behind(self, now: float) -> None:
        """A question was not answered in time; from now on the server has to show progress."""
        self.behind = True
        self._waiting_since = now

    def caught_up(self, now: float, slack: float) -> bool:
        """The server is in step, or what separates it from us has been under way for `slack` at most.

        Were equality asked for, an engine that steps faster than a round trip could never resume. A request
        whose opening is not answered has not caught up.
        """
        if self.in_step:
            return True
        return self.answered >= 0 and now - self._under_way[0][2] <= slack

    def stuck(self, now: float, patience: float, session_heard: float) -> bool:
        """Whether an answer has been missing for longer than `patience`.

        A request that is behind is judged by its own answers. One that only ingests may wait its turn as
        long as the session gets any answer, and any may wait while its messages are still on our side.
        """
        if not self.open or self.in_step or self.queued:
            return False
        since = self._waiting_since if self.behind else max(self._waiting_since, session_heard)
        return now - since >= patience

    def close(self, phase: Phase, why: NoDraft) -> None:
        """Forget what the server might know."""
        self.phase = phase
        self.why_closed = why
        self.behind = False
        self.ask = None
        self._under_way.clear()
