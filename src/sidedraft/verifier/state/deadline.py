"""How long a step waits."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque

from sidedraft.settings import VerifierSettings

SAMPLES = 128
"""Latest latencies that the median is taken over."""


class AdaptiveDeadline:
    """A factor times the running median of proposal latency, within a floor and a ceiling.

    Late answers count too: were they left out, a server that has become slower than the present deadline
    could never move it. A fixed deadline in the settings overrides all of this.
    """

    def __init__(self, settings: VerifierSettings) -> None:
        self._settings = settings
        self._latest: deque[float] = deque()
        self._ordered: list[float] = []

    def observe(self, latency: float) -> None:
        """Seconds from submit to the answer of one proposal."""
        if len(self._latest) == SAMPLES:
            del self._ordered[bisect_left(self._ordered, self._latest.popleft())]
        self._latest.append(latency)
        insort(self._ordered, latency)

    def forget(self) -> None:
        """Start anew: what was observed belongs to another server, or another time of this one."""
        self._latest.clear()
        self._ordered.clear()

    @property
    def median(self) -> float | None:
        """Seconds; None before the first sample."""
        return self._ordered[len(self._ordered) // 2] if self._ordered else None

    def seconds(self) -> float:
        """How long the next step may wait, counted from its submit."""
        rule = self._settings
        if rule.deadline is not None:
            return rule.deadline
        if len(self._latest) < rule.deadline_warmup:
            return rule.deadline_initial
        median = self._ordered[len(self._ordered) // 2]
        return min(rule.deadline_ceiling, max(rule.deadline_floor, rule.deadline_factor * median))

    def longest(self) -> float:
        """The budget of a probe: nobody waits for it, so that it may show how slow the server has become."""
        return self.seconds() if self._settings.deadline is not None else self._settings.deadline_ceiling
