"""The fake network: connects ends by address and carries messages in virtual time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from random import Random

from sidedraft.transport.base import Frame, Lane, TransportError
from sidedraft.transport.fake.connection import Action, Connection
from sidedraft.transport.fake.ends import FakeChannel, FakeListener
from sidedraft.transport.fake.faults import Direction, Faults, Link, corrupted


class FakeNetwork:
    """Single-threaded and deterministic: the same seed, clock and calls give the same events.

    Nothing happens by itself. What is due by `clock()` happens when an end is used; a test moves the clock,
    to `next_due()` for instance, and polls. Faults come from `faults` (the chances new links start with),
    from `FakeChannel.links[lane, direction]` (chances and script of one link), and from `cut` and `kill`.

    Args:
        clock: the time in seconds; never goes back.
        seed: of all chances.
        faults: chances on every new link.
        queue_limit: messages a direction of a connection holds until they are read; then `send` says False.
        reconnect_delay: seconds from a lost connection, or a new listener, to the next connection.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        seed: int = 0,
        *,
        faults: Faults = Faults(),  # noqa: B008 - frozen
        queue_limit: int = 64,
        reconnect_delay: float = 0.0,
    ) -> None:
        self.random = Random(seed)
        self._clock = clock
        self._faults = faults
        self._queue_limit = queue_limit
        self._reconnect_delay = reconnect_delay
        self._listeners: dict[str, FakeListener] = {}
        self._channels: list[FakeChannel] = []
        self._agenda: list[tuple[float, int, Action]] = []
        self._order = itertools.count()
        self._peers = itertools.count(1)

    def listen(self, address: str = "fake://server") -> FakeListener:
        """The server's end; raises TransportError when another one is alive at `address`."""
        if address in self._listeners:
            raise TransportError(f"address {address}: already in use")
        listener = self._listeners[address] = FakeListener(self, address)
        for channel in self._channels:
            if channel.address == address:
                self._connect_later(channel)
        return listener

    def connect(self, address: str = "fake://server") -> FakeChannel:
        """The verifier's end; connects as soon as a listener is at `address`, and again whenever it can."""
        links = {(lane, way): Link(self._faults) for lane in Lane for way in Direction}
        channel = FakeChannel(self, address, links)
        self._channels.append(channel)
        self._connect_later(channel)
        return channel

    def set_faults(self, faults: Faults) -> None:
        """New chances for every link, those to come included."""
        self._faults = faults
        for channel in self._channels:
            for link in channel.links.values():
                link.faults = faults

    def cut(self, channel: FakeChannel, lane: Lane | None = None) -> None:
        """Break the connection of a lane, or of both; the channel reconnects by itself."""
        self.settle()
        for connection in list(channel.connections.values()):
            if lane in (None, connection.lane):
                self.hang_up(connection, "connection lost")

    def kill(self, end: FakeChannel | FakeListener) -> None:
        """The process of this end dies: what it had sent and what it had not read is lost."""
        end.close()

    def next_due(self) -> float | None:
        """When something happens next, None when nothing will."""
        return self._agenda[0][0] if self._agenda else None

    def settle(self) -> None:
        """Do everything that is due by now, in order."""
        now = self._clock()
        while self._agenda and self._agenda[0][0] <= now:
            heapq.heappop(self._agenda)[2]()

    def transmit(self, connection: Connection, direction: Direction, frames: Sequence[Frame]) -> bool:
        """Send one message to its fate; False when the direction's queue is full."""
        if connection.queued[direction] >= self._queue_limit:
            return False
        link = connection.channel.links[connection.lane, direction]
        fate = link.next_fate(self.random)
        contents = corrupted(frames, self.random) if fate.corrupt else [bytes(frame) for frame in frames]
        for delay in fate.delays:
            due = self._clock() + link.faults.latency + delay
            if not fate.overtaken:
                due = connection.last_due[direction] = max(due, connection.last_due[direction])
            connection.queued[direction] += 1
            self._at(due, self._arrival(connection, direction, contents))
        if fate.cut:
            self.hang_up(connection, "connection lost")
        return True

    def hang_up(self, connection: Connection, reason: str) -> None:
        """End a connection; the channel's end connects again when it can."""
        if connection.alive:
            connection.alive = False
            connection.listener.detach(connection, reason)
            connection.channel.detach(connection, reason)
            self._connect_later(connection.channel)

    def forget(self, end: FakeChannel | FakeListener) -> None:
        """An end is closed: its connections are gone."""
        self.settle()
        if isinstance(end, FakeListener):
            del self._listeners[end.address]
        else:
            self._channels.remove(end)
        for connection in list(end.connections.values()):
            self.hang_up(connection, "the other end is gone")

    def _arrival(self, connection: Connection, direction: Direction, contents: list[bytes]) -> Action:
        def arrive() -> None:
            if connection.alive:
                end = connection.listener if direction is Direction.UP else connection.channel
                end.deliver(connection, [memoryview(frame) for frame in contents])

        return arrive

    def _connect_later(self, channel: FakeChannel) -> None:
        def connect() -> None:
            listener = self._listeners.get(channel.address)
            if channel.closed or listener is None:
                return
            for lane in Lane:
                if lane not in channel.connections:
                    peer = b"\0" + next(self._peers).to_bytes(4, "big")
                    connection = Connection(peer, lane, channel, listener)
                    listener.attach(connection)
                    channel.attach(connection)

        self._at(self._clock() + self._reconnect_delay, connect)

    def _at(self, due: float, action: Action) -> None:
        heapq.heappush(self._agenda, (due, next(self._order), action))
