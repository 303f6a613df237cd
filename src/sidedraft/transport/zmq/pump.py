"""The wait of both ends: for messages, for connections that come and go, for a wake, for the next watch."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, Protocol

import zmq

from sidedraft.transport.base import Event, TransportError
from sidedraft.transport.zmq.gate import Gate
from sidedraft.transport.zmq.monitor import Monitor
from sidedraft.transport.zmq.options import WATCH_INTERVAL
from sidedraft.transport.zmq.waker import Waker


class PolledLane(Protocol):
    """What the pump needs of a lane."""

    socket: zmq.Socket[Any]
    monitor: Monitor

    def read_messages(self, events: list[Event]) -> None: ...

    def read_monitor(self, events: list[Event]) -> None: ...

    def watch(self) -> None:
        """Look after the connections; called every `WATCH_INTERVAL`, also when nothing happens."""

    def close(self) -> None: ...


class Pump:
    """Owns the sockets of one end; used by one thread, but for `wake`."""

    def __init__(
        self,
        context: zmq.Context[zmq.Socket[Any]],
        lanes: Sequence[PolledLane],
        name: str,
        gate: Gate | None = None,
    ) -> None:
        self._context = context
        self._lanes = lanes
        self._gate = gate
        self._name = name
        self._waker = Waker()
        self._closed = False
        self._next_watch = time.monotonic() + WATCH_INTERVAL
        self._poller = zmq.Poller()
        self._poller.register(self._waker, zmq.PollEvent.POLLIN)
        for lane in lanes:
            self._poller.register(lane.socket, zmq.PollEvent.POLLIN)
            self._poller.register(lane.monitor.socket, zmq.PollEvent.POLLIN)
        if gate is not None:
            self._poller.register(gate.socket, zmq.PollEvent.POLLIN)

    def poll(self, timeout: float) -> list[Event]:
        """Events, waiting up to `timeout` seconds for the first; none also when woken."""
        self.check_open()
        until = time.monotonic() + timeout
        while True:
            now = time.monotonic()
            if now >= self._next_watch:
                self._next_watch = now + WATCH_INTERVAL
                for lane in self._lanes:
                    lane.watch()
            events, woken = self._wait(max(0.0, min(until, self._next_watch) - now))
            if events or woken or time.monotonic() >= until:
                return events

    def _wait(self, seconds: float) -> tuple[list[Event], bool]:
        try:
            ready = dict(self._poller.poll(math.ceil(seconds * 1000)))
            events: list[Event] = []
            if self._gate is not None and self._gate.socket in ready:
                self._gate.read()
            for lane in self._lanes:
                # Messages first: those a connection brought before it ended count as from a living one.
                if lane.socket in ready:
                    lane.read_messages(events)
                if lane.monitor.socket in ready:
                    lane.read_monitor(events)
        except zmq.ZMQError as error:
            raise TransportError(f"{self._name}: {error}") from error
        woken = self._waker.fileno() in ready
        if woken:
            self._waker.drain()
        return events, woken

    def check_open(self) -> None:
        """Raises TransportError after `close`."""
        if self._closed:
            raise TransportError(f"{self._name}: closed")

    def wake(self) -> None:
        self._waker.wake()

    def close(self) -> None:
        """Close every socket; what was not sent by now is lost."""
        if not self._closed:
            self._closed = True
            for lane in self._lanes:
                lane.close()
            if self._gate is not None:
                self._gate.close()
            self._context.term()
            self._waker.close()
