"""What the I/O thread hands to the engine thread."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    # The I/O thread runs before torch is there, and the job's module needs it.
    from sidedraft.server.job import Job


@dataclass(frozen=True, slots=True)
class ReleaseRequest:
    """A verifier let go of one request, up to this generation."""

    owner: int
    request: int
    generation: int


@dataclass(frozen=True, slots=True)
class ReleaseOwner:
    """A session is over; everything it held goes."""

    owner: int


Order: TypeAlias = "Job | ReleaseRequest | ReleaseOwner"


class Inbox:
    """Orders for the engine, kept in sequence. `put` never waits."""

    def __init__(self) -> None:
        self._ready = threading.Condition()
        self._orders: list[Order] = []

    def __len__(self) -> int:
        return len(self._orders)

    def put(self, orders: list[Order]) -> None:
        if orders:
            with self._ready:
                self._orders.extend(orders)
                self._ready.notify()

    def take(self, timeout: float) -> list[Order]:
        """Everything that waits; waits up to `timeout` seconds for the first."""
        with self._ready:
            if not self._orders and timeout > 0:
                self._ready.wait(timeout)
            orders, self._orders = self._orders, []
            return orders
