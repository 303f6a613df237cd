"""Times of a step's stages, for the log."""

from __future__ import annotations

import logging
from collections.abc import Mapping

_log = logging.getLogger(__name__)


class StageLog:
    """One line every `interval` steps, with the mean of each stage; none at 0."""

    def __init__(self, interval: int) -> None:
        self._interval = interval
        self._steps = 0
        self._sums: dict[str, float] = {}

    def add(self, seconds: Mapping[str, float]) -> None:
        """Seconds by stage of one more step."""
        if not self._interval:
            return
        for stage, spent in seconds.items():
            self._sums[stage] = self._sums.get(stage, 0.0) + spent
        self._steps += 1
        if self._steps == self._interval:
            means = ", ".join(
                f"{stage} {1e3 * total / self._steps:.3f}" for stage, total in self._sums.items()
            )
            _log.info("mean ms of the last %d steps: %s", self._steps, means)
            self._steps = 0
            self._sums.clear()
