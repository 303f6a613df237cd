"""Numbers that only grow."""

from __future__ import annotations

import dataclasses
from typing import Any


@dataclasses.dataclass(slots=True)
class Counter:
    """One number, written by one thread and read by any."""

    value: int = 0

    def add(self, amount: int = 1) -> None:
        self.value += amount


def snapshot(counters: Any) -> dict[str, int]:
    """Names and values of the counters among a dataclass's fields, in order."""
    fields = ((field.name, getattr(counters, field.name)) for field in dataclasses.fields(counters))
    return {name: value.value for name, value in fields if isinstance(value, Counter)}
