"""One lane's connection inside the fake network, and what is under way on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from sidedraft.transport.base import Frame, Lane, PeerId
from sidedraft.transport.fake.faults import Direction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidedraft.transport.fake.ends import FakeChannel, FakeListener


@dataclass(eq=False, slots=True)
class Connection:
    """Dies once and is never used again; a channel that reconnects gets a new one with a new id."""

    peer: PeerId
    lane: Lane
    channel: FakeChannel
    listener: FakeListener
    alive: bool = True
    queued: dict[Direction, int] = field(default_factory=lambda: dict.fromkeys(Direction, 0))
    """Messages sent and not yet read, by direction."""
    last_due: dict[Direction, float] = field(default_factory=lambda: dict.fromkeys(Direction, 0.0))
    """When the last ordered message arrives, by direction: a later one arrives no earlier."""


class Wires(Protocol):
    """What the ends need of the network."""

    def settle(self) -> None:
        """Do everything that is due by now."""

    def transmit(self, connection: Connection, direction: Direction, frames: Sequence[Frame]) -> bool:
        """Send one message; False when the queue is full."""

    def hang_up(self, connection: Connection, reason: str) -> None:
        """End a connection; what is under way is lost."""

    def forget(self, end: FakeChannel | FakeListener) -> None:
        """An end is closed."""


Action = Callable[[], None]
"""Something the network does when its time has come."""
