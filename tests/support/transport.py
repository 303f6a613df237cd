"""Polling real ends until something has happened, with a bound."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable
from typing import Protocol

from sidedraft.transport.base import Connected, Disconnected, Event, Lane, PeerId, Received
from sidedraft.transport.zmq import ZmqChannel, ZmqListener

PATIENCE = 30.0
"""Seconds after which a test fails because nothing happened; it never decides how fast something must be."""


class End(Protocol):
    def poll(self, timeout: float) -> list[Event]: ...


def until(end: End, done: Callable[[list[Event]], bool], *others: End) -> list[Event]:
    """Events of `end` until `done` says that they are enough; `others` are polled too, and forgotten."""
    events: list[Event] = []
    give_up = time.monotonic() + PATIENCE
    while not done(events):
        assert time.monotonic() < give_up, f"waited in vain; so far: {events}"
        events += end.poll(0.01)
        for other in others:
            other.poll(0)
    return events


def connected(channel: End) -> None:
    """Wait until both lanes are up."""
    up: set[Lane] = set()

    def both(events: list[Event]) -> bool:
        up.clear()
        for event in events:
            if isinstance(event, Connected):
                up.add(event.lane)
            elif isinstance(event, Disconnected):
                up.discard(event.lane)
        return len(up) == len(Lane)

    until(channel, both)


def messages(end: End, count: int, *others: End) -> list[Received]:
    """At least the next `count` messages, and all that came with them; other events are dropped."""
    events = until(end, lambda seen: sum(isinstance(e, Received) for e in seen) >= count, *others)
    return [event for event in events if isinstance(event, Received)]


def message(end: End) -> Received:
    """The next message, and no other."""
    (found,) = messages(end, 1)
    return found


def gone(end: End, peer: PeerId = b"") -> Disconnected:
    """Wait for a `Disconnected` of this peer."""

    def found(events: list[Event]) -> list[Disconnected]:
        return [e for e in events if isinstance(e, Disconnected) and e.peer == peer]

    return found(until(end, lambda events: bool(found(events))))[0]


def neighbouring_ports() -> tuple[socket.socket, socket.socket]:
    """Two listening sockets at a free port of the loopback and at the next one."""
    for _ in range(100):
        control = socket.create_server(("127.0.0.1", 0))
        with contextlib.suppress(OSError):
            return control, socket.create_server(("127.0.0.1", control.getsockname()[1] + 1))
        control.close()
    raise OSError("no two neighbouring ports are free")


class Canary:
    """A well-behaved verifier that checks that it is served as if it were alone."""

    def __init__(self, listener: ZmqListener) -> None:
        self._listener = listener
        self._count = 0
        self.channel = ZmqChannel(listener.address)
        connected(self.channel)
        self.peer = self.check()

    def check(self) -> PeerId:
        """One message up and its answer down. Events of other peers on the way are dropped."""
        self._count += 1
        text = b"canary %d" % self._count
        assert self.channel.send(Lane.CONTROL, [text])

        def mine(events: list[Event]) -> list[Received]:
            return [e for e in events if isinstance(e, Received) and bytes(e.frames[0]) == text]

        received = mine(until(self._listener, lambda events: bool(mine(events))))[0]
        assert self._listener.send(received.peer, Lane.CONTROL, [b"seen ", text])
        answer = message(self.channel)
        assert [bytes(frame) for frame in answer.frames] == [b"seen ", text]
        return received.peer

    def close(self) -> None:
        self.channel.close()
