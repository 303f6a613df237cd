"""One lane of a channel: a DEALER that connects, and knows when it is connected."""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Sequence
from typing import Any

import zmq

from sidedraft.settings import WireLimits
from sidedraft.transport.address import Address
from sidedraft.transport.base import MAX_FRAMES, Connected, Disconnected, Event, Frame, Lane, Received
from sidedraft.transport.keys import VerifierKeys
from sidedraft.transport.zmq.connection import Connection
from sidedraft.transport.zmq.curve import failure
from sidedraft.transport.zmq.messages import catch_up, receive_message, send_message
from sidedraft.transport.zmq.monitor import Monitor
from sidedraft.transport.zmq.options import MESSAGES_A_POLL, RECONNECT_STALLED, configure_channel

_log = logging.getLogger(__name__)

_FAILURES = (
    zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
    | zmq.Event.HANDSHAKE_FAILED_PROTOCOL
    | zmq.Event.HANDSHAKE_FAILED_AUTH
)
_EVENTS = (
    zmq.Event.CONNECTED
    | zmq.Event.CONNECT_DELAYED
    | zmq.Event.CONNECT_RETRIED
    | zmq.Event.HANDSHAKE_SUCCEEDED
    | zmq.Event.DISCONNECTED
    | _FAILURES
)


class DealerLane:
    """Reconnects for ever: libzmq does, and where it gives up this starts over."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[Any]],
        lane: Lane,
        address: Address,
        limits: WireLimits,
        undelivered_limit: int,
        keys: VerifierKeys | None = None,
    ) -> None:
        self.lane = lane
        self._keys = keys
        self._endpoint = address.endpoint(lane)
        self._undelivered_limit = undelivered_limit
        self._connection: Connection | None = None
        self._up = False
        self._reported: set[str] = set()
        self._last_sign = time.monotonic()
        self.socket = context.socket(zmq.SocketType.DEALER)
        configure_channel(self.socket, lane, address, limits, keys)
        self.monitor = Monitor(context, self.socket, _EVENTS)
        self.socket.connect(self._endpoint)

    def send(self, frames: Sequence[Frame], *, copy: bool) -> bool:
        return self._up and send_message(self.socket, frames, copy=copy)

    def read_messages(self, events: list[Event]) -> None:
        if self._connection is None or self._connection.ended:
            self.read_monitor(events)  # a connection's CONNECTED event is there before its first message
        connection = self._connection
        for _ in range(MESSAGES_A_POLL[self.lane]):
            frames = receive_message(self.socket, MAX_FRAMES)
            if frames is None:
                return
            if connection is not None:
                connection.delivered()
            if len(frames) > MAX_FRAMES:
                if connection is not None:
                    connection.end(f"a message of more than {MAX_FRAMES} frames")
            elif connection is None or not connection.ended:
                events.append(Received(self.lane, [frame.buffer for frame in frames]))

    def read_monitor(self, events: list[Event]) -> None:
        for event in self.monitor.read():
            self._last_sign = time.monotonic()
            if event.kind == zmq.Event.CONNECTED:
                self._connection = Connection(event.value)
                self._connection.refuse_strangers()
                if self._connection.ended:
                    self._report(self._connection.ended)
            elif event.kind == zmq.Event.HANDSHAKE_SUCCEEDED and not self._up:
                if self._connection is not None and not self._connection.ended:
                    self._up = True
                    self._reported.clear()
                    events.append(Connected(self.lane))
            elif event.kind & _FAILURES and not (self._connection is not None and self._connection.ended):
                self._report(self._why_failed(event.kind, event.value))
            elif event.kind == zmq.Event.DISCONNECTED:
                reason = self._connection.ended if self._connection is not None else ""
                self._connection = None
                if self._up:
                    self._up = False
                    events.append(Disconnected(self.lane, reason=reason or "connection lost"))
            catch_up(self.socket)

    def watch(self) -> None:
        if self._connection is not None:
            self._connection.watch(self._undelivered_limit)
        if not self._up and time.monotonic() - self._last_sign > RECONNECT_STALLED:
            self._start_over()

    def close(self) -> None:
        self.monitor.close()
        self.socket.close()

    def _why_failed(self, kind: int, value: int) -> str:
        """What a failed handshake means at this end; the server tells strangers nothing."""
        known = failure(kind, value)
        if known:
            return f"the handshake failed: {known}"
        if self._keys is None:
            return "the server ended the handshake; it may expect keys"
        return "the server ended the handshake; server_key may be another server's"

    def _report(self, refusal: str) -> None:
        """Say why there is no connection, once and not at each attempt."""
        if refusal not in self._reported:
            self._reported.add(refusal)
            _log.warning("%s: %s", self._endpoint, refusal)

    def _start_over(self) -> None:
        self._last_sign = time.monotonic()
        try:
            self.socket.disconnect(self._endpoint)
        except zmq.ZMQError as error:
            if error.errno != errno.ENOENT:  # ENOENT: libzmq has forgotten the endpoint itself
                raise
        self.socket.connect(self._endpoint)
