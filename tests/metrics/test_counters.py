"""Counters and what a status shows of them."""

from __future__ import annotations

from dataclasses import dataclass, field

from sidedraft.metrics import Counter, snapshot


@dataclass
class Two:
    first: Counter = field(default_factory=Counter)
    second: Counter = field(default_factory=Counter)


def test_a_snapshot_has_names_and_values_in_order() -> None:
    two = Two()
    two.second.add()
    two.second.add(4)
    assert list(snapshot(two).items()) == [("first", 0), ("second", 5)]
