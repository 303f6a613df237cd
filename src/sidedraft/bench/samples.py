"""Samples of several things taken by turns, and what is shown of them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

Key = TypeVar("Key")
Sample = TypeVar("Sample")


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Of one figure; milliseconds where nothing else is said."""

    p50: float
    p99: float
    """The sample that 99 % do not exceed; with fewer than 100 samples that is the greatest."""
    samples: int


def spread(values: Sequence[float], factor: float = 1e3) -> Spread:
    """`factor`: to the unit shown; by default from seconds to milliseconds."""
    ordered = sorted(values)
    return Spread(
        p50=round(statistics.median(ordered) * factor, 4),
        p99=round(ordered[-(-99 * len(ordered) // 100) - 1] * factor, 4),
        samples=len(ordered),
    )


def by_turns(
    arms: Mapping[Key, Callable[[], Sample]],
    rounds: int,
    *,
    warm_up: int = 1,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> dict[Key, list[Sample]]:
    """Take one sample of each arm a round, there and back by turns, so that what else the machine does hits
    all alike; the first `warm_up` rounds do not count."""
    found: dict[Key, list[Sample]] = {key: [] for key in arms}
    keys = list(arms)
    for turn in range(-warm_up, rounds):
        for key in keys if turn % 2 else reversed(keys):
            sample = arms[key]()
            if turn >= 0:
                found[key].append(sample)
        progress(max(0, turn + 1), rounds)
    return found
