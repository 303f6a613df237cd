"""What one session may have at once, so that none takes what all share."""

from __future__ import annotations

from dataclasses import dataclass

from sidedraft.server.sessions import Session
from sidedraft.settings import MIB
from sidedraft.transport.base import Lane
from sidedraft.wire.advance import Advance
from sidedraft.wire.errors import Code, WireError


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotas:
    """Bounds of each session. That of open requests, and the credit of bulk, stand in its agreement."""

    advances: int = 16384
    """Unanswered advances: far above what a verifier has requests for, and a bound for a peer that only
    sends."""
    waiting: int = 64 * MIB
    """Bytes of control payload that unanswered advances read from."""
    rows: int | None = None
    """Context rows that it sent and its open requests hold; None for no bound of its own."""

    def exceeded(
        self, session: Session, advance: Advance, lane: Lane, size: int, taken: int
    ) -> WireError | None:
        """Why the advance is not taken, naming the quota; None when it is.

        Args:
            size: bytes of the payload it came in.
            taken: advances of the same message taken already.
        """
        unanswered = session.unanswered + taken
        if unanswered >= self.advances:
            return _refusal(advance, "advances", unanswered, f"fewer than {self.advances} unanswered")
        if lane is Lane.CONTROL and session.held[lane] + size > self.waiting:
            waiting = session.held[lane] + size
            return _refusal(advance, "bytes", waiting, f"at most {self.waiting} waiting on control")
        most = session.agreement.limits.requests
        if advance.request not in session.requests and len(session.requests) >= most:
            return _refusal(advance, "requests", len(session.requests) + 1, f"at most {most} open")
        if self.rows is not None and session.rows_with(advance) > self.rows:
            return _refusal(advance, "rows", session.rows_with(advance), f"at most {self.rows} held")
        return None


def _refusal(advance: Advance, field: str, value: int, expected: str) -> WireError:
    return WireError(
        Code.CAPACITY,
        f"{field} of this session",
        value,
        expected,
        request=advance.request,
        generation=advance.generation,
        number=advance.number,
    )
