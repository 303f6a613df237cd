"""Values counted in buckets: what a distribution looks like, in bounded memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """Written by one thread at a time, read by any. A value on a bound belongs to the bucket below it."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[int]) -> None:
        """`bounds`: ascending upper bounds; one more bucket is for what is beyond the last."""
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        """One value a bucket, not cumulative."""
        self.total = 0
        """Sum of all values."""

    def observe(self, value: int) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


def quantile(bounds: Sequence[int], counts: Sequence[int], share: float) -> float | None:
    """The value that `share` (0 to 1) of all lie below, taken as evenly spread inside a bucket; None without
    any. Never beyond the last bound, as nothing is known of what is there.
    """
    wanted = share * sum(counts)
    if not wanted:
        return None
    low = 0
    for bound, count in zip(bounds, counts, strict=False):
        if count >= wanted:
            return low + (bound - low) * wanted / count
        wanted -= count
        low = bound
    return float(low)
