"""The breaker: while it is open, no step waits."""

from __future__ import annotations

from enum import StrEnum

from sidedraft.settings import VerifierSettings
from sidedraft.verifier.state.backoff import Backoff


class BreakerState(StrEnum):
    CLOSED = "closed"
    """Steps ask and wait."""
    OPEN = "open"
    """No step asks."""
    HALF_OPEN = "half_open"
    """One probe is under way; still no step waits."""


class Cause(StrEnum):
    """Why the breaker is open; each cause has its own cure."""

    NO_SESSION = "no_session"
    """Not connected, or no handshake yet. Cure: a session."""
    REFUSED_SEND = "refused_send"
    """The transport took no message. Cure: a heartbeat that is taken, and answered."""
    LATE = "late"
    """Steps in a row in which every asked request was late. Cure: a proposal in time, not waited for."""


class Breaker:
    """Starts open: an engine's first steps never wait for a server that is not there."""

    def __init__(self, settings: VerifierSettings, backoff: Backoff) -> None:
        self.state = BreakerState.OPEN
        self.cause = Cause.NO_SESSION
        self._settings = settings
        self._backoff = backoff
        self._late_steps = 0
        self._good_steps = 0
        self._probe_at = 0.0

    @property
    def closed(self) -> bool:
        return self.state is BreakerState.CLOSED

    def trip(self, now: float, cause: Cause) -> bool:
        """Open at once. True when it was closed."""
        was_closed = self.closed
        self.state = BreakerState.OPEN
        self.cause = cause
        self._late_steps = 0
        self._good_steps = 0
        self._probe_at = now + self._backoff.next()
        return was_closed

    def step(self, now: float, all_late: bool) -> bool:
        """Count a step that asked for at least one draft. True when this opened the breaker."""
        if not self.closed:
            return False
        if not all_late:
            self._late_steps = 0
            self._good_steps += 1
            if self._good_steps >= self._settings.deadline_warmup:
                # Only after a run of good steps: else a server that answers probes and nothing more would
                # cost full waits at the shortest retry, for ever.
                self._backoff.reset()
            return False
        self._good_steps = 0
        self._late_steps += 1
        return self._late_steps >= self._settings.breaker_late_steps and self.trip(now, Cause.LATE)

    def probe_due(self, now: float) -> bool:
        """Whether a proposal may be sent to see if lateness is over."""
        return self.state is BreakerState.OPEN and self.cause is Cause.LATE and now >= self._probe_at

    def probing(self) -> None:
        """A probe was sent; it ends in `close` or in `trip`."""
        self.state = BreakerState.HALF_OPEN

    def close(self) -> None:
        self.state = BreakerState.CLOSED
        self._late_steps = 0
        self._good_steps = 0
