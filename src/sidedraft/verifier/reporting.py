"""Writes the ladder's news to the log: one line a rung, and no more than one in an interval."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from sidedraft.verifier.state.news import Item, Rung

INTERVAL = 5.0
"""Seconds between two lines of the same rung; what came between is counted in the later one."""

_log = logging.getLogger("sidedraft.verifier")


class Reporter:
    """Used by one thread at a time."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._last: dict[Rung, float] = {}
        self._held: dict[Rung, int] = {}

    def report(self, now: float, items: Iterable[Item]) -> None:
        for item in items:
            last = self._last.get(item.rung)
            if last is not None and now - last < INTERVAL:
                self._held[item.rung] = self._held.get(item.rung, 0) + 1
                continue
            self._last[item.rung] = now
            held = self._held.pop(item.rung, 0)
            more = f" (and {held} like it since the last line)" if held else ""
            level = logging.INFO if item.rung is Rung.SESSION else logging.WARNING
            _log.log(level, "%s: %s%s", self._address, item.text, more)
