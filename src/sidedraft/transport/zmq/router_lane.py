"""One lane of a listener: a ROUTER, its connections by descriptor, and its peers by id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import zmq

from sidedraft.settings import WireLimits
from sidedraft.transport.address import Address
from sidedraft.transport.base import MAX_FRAMES, Connected, Disconnected, Event, Frame, Lane, PeerId, Received
from sidedraft.transport.clients import Client
from sidedraft.transport.keys import KeyPair
from sidedraft.transport.zmq.connection import Connection
from sidedraft.transport.zmq.curve import key_of
from sidedraft.transport.zmq.gate import Gate
from sidedraft.transport.zmq.messages import descriptor_of, receive_message, send_message
from sidedraft.transport.zmq.monitor import Monitor
from sidedraft.transport.zmq.options import MESSAGES_A_POLL, MOST_CONNECTIONS, configure_listener

_FAILED = zmq.Event.HANDSHAKE_FAILED_PROTOCOL | zmq.Event.HANDSHAKE_FAILED_AUTH
_EVENTS = zmq.Event.ACCEPTED | zmq.Event.DISCONNECTED | _FAILED


class RouterLane:
    """Not bound yet: the listener does that.

    libzmq's monitor knows connections by descriptor, messages name their peer's id; what joins them is that
    libzmq tells by which descriptor a message came.
    """

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[Any]],
        lane: Lane,
        address: Address,
        limits: WireLimits,
        undelivered_limit: int,
        own: KeyPair | None = None,
        gate: Gate | None = None,
    ) -> None:
        """With `own` keys, the gate decides who may come in."""
        self.lane = lane
        self._gate = gate
        self._undelivered_limit = undelivered_limit
        self._connections: dict[int, Connection] = {}
        self._peers: dict[PeerId, Connection] = {}
        self.socket = context.socket(zmq.SocketType.ROUTER)
        configure_listener(self.socket, lane, address, limits, own)
        self.monitor = Monitor(context, self.socket, _EVENTS)

    def send(self, peer: PeerId, frames: Sequence[Frame]) -> bool:
        connection = self._peers.get(peer)
        if connection is None or connection.ended:
            return False
        return send_message(self.socket, [peer, *frames])

    def drop(self, peer: PeerId, reason: str) -> None:
        connection = self._peers.get(peer)
        if connection is not None:
            connection.end(reason)

    def client(self, peer: PeerId) -> Client | None:
        """Who the peer proved to be; None without keys."""
        connection = self._peers.get(peer)
        return None if connection is None else connection.client

    def check_clients(self) -> None:
        """End the connections of those whose rights are not what they were; who may comes back at once."""
        for connection in self._connections.values():
            if self._gate is not None and connection.client is not None and not connection.ended:
                now = self._gate.client(connection.client.key)
                if now != connection.client:
                    what = "key was revoked" if now is None else "rights changed"
                    self._gate.say(what, f"ended a connection of {connection.client.name}: its {what}")
                    connection.end(f"its {what}")

    def read_messages(self, events: list[Event]) -> None:
        for _ in range(MESSAGES_A_POLL[self.lane]):
            parts = receive_message(self.socket, 1 + MAX_FRAMES)
            if parts is None:
                return
            connection = self._origin(parts[0], events)
            if connection is None or connection.ended:
                continue
            connection.delivered()
            frames = [part.buffer for part in parts[1:]]
            if 1 <= len(frames) <= MAX_FRAMES:
                events.append(Received(self.lane, frames, connection.peer))
            else:
                connection.end(f"a message of no frame or more than {MAX_FRAMES}")

    def read_monitor(self, events: list[Event]) -> None:
        for event in self.monitor.read():
            if event.kind & _FAILED:  # its value is no descriptor
                if self._gate is not None:
                    self._gate.failed(event.kind, event.value)
                continue
            # A descriptor that is accepted again without a word of its end was closed unseen.
            known = self._connections.pop(event.value, None)
            if known is not None:
                self._depart(known, events)
            if event.kind == zmq.Event.ACCEPTED:
                self._connections[event.value] = accepted = Connection(event.value)
                if len(self._connections) > MOST_CONNECTIONS:
                    accepted.end("too many connections")

    def watch(self) -> None:
        for connection in self._connections.values():
            connection.watch(self._undelivered_limit)

    def close(self) -> None:
        self.monitor.close()
        self.socket.close()

    def _origin(self, sender: zmq.Frame, events: list[Event]) -> Connection | None:
        """The connection a message came by; None, and the message is void, when it is gone or of another age:
        peers of ZMTP 1 and 2 cannot be told apart."""
        peer, descriptor = sender.bytes, descriptor_of(sender)
        connection = self._peers.get(peer)
        key = "" if self._gate is None else key_of(sender)
        if connection is not None and connection.descriptor == descriptor and connection.holds(key):
            return connection
        self.read_monitor(events)  # its ACCEPTED event was there before its first message
        connection = self._connections.get(descriptor)
        if connection is None:
            return None
        if self._gate is not None and not self._admit(self._gate, connection, key):
            return None
        # An id that its peer chose may be in use, or have come by a connection that is gone but not yet
        # reported: the latest message is right.
        for former in {connection, self._peers.get(peer, connection)}:
            self._depart(former, events)
        connection.peer = peer
        self._peers[peer] = connection
        events.append(Connected(self.lane, peer))
        return connection

    def _admit(self, gate: Gate, connection: Connection, key: str) -> bool:
        """Whether a connection that brings its first message may still do so: its key may have been revoked
        after its handshake."""
        client = connection.client = gate.client(key)
        if client is None and not connection.ended:
            gate.say("key was revoked", f"ended a connection: its key {key} was revoked")
            connection.end("its key was revoked")
        return client is not None

    def _depart(self, connection: Connection, events: list[Event]) -> None:
        """A peer that was announced has gone."""
        if connection.peer and self._peers.get(connection.peer) is connection:
            del self._peers[connection.peer]
            events.append(Disconnected(self.lane, connection.peer, connection.ended or "connection lost"))
        connection.peer = b""
