"""Time that moves only when it is told to."""

from __future__ import annotations


class VirtualClock:
    """Call it for the time in seconds, as `time.monotonic`; it starts at 0."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Move on; raises ValueError when asked to go back."""
        if seconds < 0:
            raise ValueError(f"seconds: {seconds} is not allowed; expected 0 or more, time never goes back")
        self._now += seconds

    def advance_to(self, time: float) -> None:
        """Move on to `time`, or stay when it has passed."""
        self._now = max(self._now, time)
