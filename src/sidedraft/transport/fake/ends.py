"""The two ends of the fake network, as `transport.base` describes them. `poll` never waits."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sidedraft.transport.base import (
    Connected,
    Disconnected,
    Event,
    Frame,
    Lane,
    PeerId,
    Received,
    TransportError,
    check_frames,
)
from sidedraft.transport.fake.connection import Connection, Wires
from sidedraft.transport.fake.faults import Direction, Link

if TYPE_CHECKING:
    from sidedraft.transport.clients import Client


class _End:
    """What both ends are: an inbox that the network fills and `poll` empties."""

    _receives: Direction
    _name: str
    """In errors, before the address."""

    def __init__(self, wires: Wires, address: str) -> None:
        self.address = address
        self.closed = False
        self._wires = wires
        self._inbox: deque[tuple[Connection, Event]] = deque()

    def poll(self, timeout: float) -> list[Event]:
        """What is due by the clock. Never waits: time moves only when the test moves it."""
        self._settle()
        events: list[Event] = []
        while self._inbox:
            connection, event = self._inbox.popleft()
            if isinstance(event, Received):
                connection.queued[self._receives] -= 1
            events.append(event)
        return events

    def wake(self) -> None:
        """Nothing to do: `poll` never waits."""

    def _settle(self) -> None:
        if self.closed:
            raise TransportError(f"the {self._name} {self.address} is closed")
        self._wires.settle()


class FakeChannel(_End):
    """The verifier's end."""

    _receives = Direction.DOWN
    _name = "channel to"

    def __init__(self, wires: Wires, address: str, links: dict[tuple[Lane, Direction], Link]) -> None:
        super().__init__(wires, address)
        self.links = links
        """Faults and scripts by lane and direction."""
        self.connections: dict[Lane, Connection] = {}

    def send(self, lane: Lane, frames: Sequence[Frame], *, copy: bool = True) -> bool:
        """See `base.Channel`. The fake always copies."""
        check_frames(frames)
        self._settle()
        connection = self.connections.get(lane)
        return connection is not None and self._wires.transmit(connection, Direction.UP, frames)

    def close(self) -> None:
        """The same, seen from the other end, as the death of the process."""
        if not self.closed:
            self.closed = True
            self._wires.forget(self)
            self._inbox.clear()

    def attach(self, connection: Connection) -> None:
        """Called by the network: a lane's connection is up."""
        self.connections[connection.lane] = connection
        self._inbox.append((connection, Connected(connection.lane)))

    def detach(self, connection: Connection, reason: str) -> None:
        """Called by the network: a lane's connection is gone."""
        if self.connections.get(connection.lane) is connection:
            del self.connections[connection.lane]
            self._inbox.append((connection, Disconnected(connection.lane, reason=reason)))

    def deliver(self, connection: Connection, frames: list[memoryview]) -> None:
        """Called by the network: a message has arrived."""
        self._inbox.append((connection, Received(connection.lane, frames)))


class FakeListener(_End):
    """The server's end. As with the real one, a peer is known from its first message on."""

    _receives = Direction.UP
    _name = "listener at"

    def __init__(self, wires: Wires, address: str) -> None:
        super().__init__(wires, address)
        self.connections: dict[tuple[PeerId, Lane], Connection] = {}
        self._known: set[Connection] = set()
        self.clients: dict[tuple[PeerId, Lane], Client] = {}
        """Put here who a peer is to be taken for; without it, there are no keys."""

    def send(self, peer: PeerId, lane: Lane, frames: Sequence[Frame]) -> bool:
        """See `base.Listener`."""
        check_frames(frames)
        self._settle()
        connection = self.connections.get((peer, lane))
        return connection is not None and self._wires.transmit(connection, Direction.DOWN, frames)

    def client(self, peer: PeerId, lane: Lane) -> Client | None:
        """See `base.Listener`."""
        return self.clients.get((peer, lane))

    def drop(self, peer: PeerId, lane: Lane) -> None:
        """See `base.Listener`. The peer's channel sees the connection end, and reconnects."""
        self._settle()
        connection = self.connections.get((peer, lane))
        if connection is not None:
            self._inbox = deque(entry for entry in self._inbox if entry[0] is not connection)
            self._wires.hang_up(connection, "dropped by the server")

    def close(self) -> None:
        """The same, seen from the other end, as the death of the process."""
        if not self.closed:
            self.closed = True
            self._wires.forget(self)
            self._inbox.clear()

    def attach(self, connection: Connection) -> None:
        """Called by the network: a lane's connection is up."""
        self.connections[connection.peer, connection.lane] = connection

    def detach(self, connection: Connection, reason: str) -> None:
        """Called by the network: a lane's connection is gone."""
        del self.connections[connection.peer, connection.lane]
        if connection in self._known:
            self._known.remove(connection)
            self._inbox.append((connection, Disconnected(connection.lane, connection.peer, reason)))

    def deliver(self, connection: Connection, frames: list[memoryview]) -> None:
        """Called by the network: a message has arrived."""
        if connection not in self._known:
            self._known.add(connection)
            self._inbox.append((connection, Connected(connection.lane, connection.peer)))
        self._inbox.append((connection, Received(connection.lane, frames, connection.peer)))
