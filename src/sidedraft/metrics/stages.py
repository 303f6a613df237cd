"""How long the stages of a proposal take, a histogram each."""

from __future__ import annotations

from collections.abc import Iterable

from sidedraft.metrics.histogram import Histogram
from sidedraft.wire.figures import BOUNDS_US, STAGES


class Stages:
    """Written by one thread at a time, read by any."""

    def __init__(self, names: Iterable[str] = STAGES) -> None:
        self.histograms = {name: Histogram(BOUNDS_US) for name in names}
        """In microseconds, by the names of `wire.figures.STAGES`."""

    def observe(self, stage: str, seconds: float) -> None:
        """Count one more time of that stage.

        Raises:
            ValueError: there is no such stage.
        """
        histogram = self.histograms.get(stage)
        if histogram is None:
            raise ValueError(f"stage: {stage!r} is not allowed; expected one of {', '.join(self.histograms)}")
        histogram.observe(max(0, round(seconds * 1e6)))
