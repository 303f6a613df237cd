"""Waits between retries: doubled, capped, jittered."""

from __future__ import annotations

from random import Random


class Backoff:
    """Jitter keeps many verifiers of one server from returning in the same instant."""

    def __init__(self, first: float, cap: float, random: Random) -> None:
        self._first = first
        self._cap = cap
        self._random = random
        self._level = 0

    def next(self) -> float:
        """Seconds to wait now: between half of the present wait and all of it."""
        wait = min(self._cap, self._first * 2.0 ** min(self._level, 32))
        self._level += 1
        return wait * (0.5 + 0.5 * self._random.random())

    def reset(self) -> None:
        self._level = 0
