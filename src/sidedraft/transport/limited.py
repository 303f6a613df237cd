"""At most one line in an interval about the same thing."""

from __future__ import annotations

from collections.abc import Hashable

INTERVAL = 5.0
"""Seconds between two lines about the same thing; what came between is counted in the later one."""

_MOST = 256
"""Different things that are remembered; what is beyond is forgotten, oldest first."""


class Limited:
    """Not thread-safe; `now` never goes back."""

    def __init__(self, interval: float = INTERVAL) -> None:
        self._interval = interval
        self._last: dict[Hashable, float] = {}
        self._held: dict[Hashable, int] = {}

    def due(self, thing: Hashable, now: float) -> str | None:
        """None: it was told a moment ago, and this time is counted. Else what to put behind the line: how
        many like it there were since the last one."""
        last = self._last.get(thing)
        if last is not None and now - last < self._interval:
            self._held[thing] = self._held.get(thing, 0) + 1
            return None
        self._last.pop(thing, None)
        self._last[thing] = now
        if len(self._last) > _MOST:
            oldest = next(iter(self._last))
            del self._last[oldest]
            self._held.pop(oldest, None)
        held = self._held.pop(thing, 0)
        return f" (and {held} like it since the last line)" if held else ""
