"""The static shapes of query passes: counts rounded up to a short ladder."""

from __future__ import annotations

GRANULE = 64
"""Smallest step between context sizes, in rows."""


def context_bucket(rows: int, limit: int) -> int:
    """Columns for a context of `rows` rows: at most an eighth more, in steps of at least `GRANULE`."""
    rows = max(rows, 1)
    step = max(GRANULE, 1 << (rows.bit_length() - 1) >> 3)
    return min(-(-rows // step) * step, limit)


def batch_bucket(count: int) -> int:
    """Batch size for `count` proposals: 1, 2, 3, 4, 6, 8, 12, 16, ..."""
    power = 1 << (count - 1).bit_length()
    between = power * 3 // 4
    return between if power >= 4 and count <= between else power
