"""A socket's monitor: when its connections come and go, and by which descriptor."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import zmq

_EVENT = struct.Struct("=Hi")
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class MonitorEvent:
    kind: int
    """A `zmq.Event`, as a plain number."""
    value: int
    """The connection's descriptor for CONNECTED, ACCEPTED and DISCONNECTED."""


class Monitor:
    """Reads the chosen events of one socket. Poll `socket`, then `read`."""

    def __init__(self, context: zmq.Context[zmq.Socket[Any]], watched: zmq.Socket[Any], events: int) -> None:
        self._watched = watched
        endpoint = f"inproc://monitor-{next(_numbers)}"
        watched.monitor(endpoint, events)
        self.socket = context.socket(zmq.SocketType.PAIR)
        # libzmq's I/O thread blocks when a monitor's queue is full; this one has no bound. It is read at
        # each poll, and an event is small.
        self.socket.setsockopt(zmq.SocketOption.RCVHWM, 0)
        self.socket.setsockopt(zmq.SocketOption.LINGER, 0)
        self.socket.connect(endpoint)

    def read(self) -> Iterator[MonitorEvent]:
        """All events that wait, oldest first."""
        while True:
            try:
                event, _endpoint = self.socket.recv_multipart(zmq.Flag.DONTWAIT)
            except zmq.Again:
                return
            yield MonitorEvent(*_EVENT.unpack(event))

    def close(self) -> None:
        self._watched.disable_monitor()
        self.socket.close()
