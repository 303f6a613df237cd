"""The I/O thread: moves events and replies, and waits only in `Listener.poll`."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from sidedraft.server.dispatch import Dispatcher
from sidedraft.server.exchange import EngineView
from sidedraft.server.inbox import Inbox
from sidedraft.server.reply import Reply
from sidedraft.server.service import Service
from sidedraft.transport.base import Connected, Disconnected, Listener, Received

TICK = 0.1
"""Seconds between two looks at leases and the stop flag when nothing arrives."""

FAREWELL = 0.2
"""Seconds given to the transport for the last messages."""


class IoLoop:
    """Owns the listener and everything about sessions, from `run` on."""

    def __init__(
        self,
        listener: Listener,
        dispatcher: Dispatcher,
        inbox: Inbox,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listener = listener
        self._dispatcher = dispatcher
        self._inbox = inbox
        self._clock = clock
        self._calls: deque[Callable[[], None]] = deque()
        self.turned = clock()
        """When the loop went round last; read by any thread."""

    def open(self, service: Service, engine: EngineView) -> None:
        """From the engine thread: the model is loaded."""
        self._call(lambda: self._dispatcher.open(service, engine))

    def reply(self, reply: Reply) -> None:
        """From the engine thread: a step is done."""
        self._call(lambda: self._dispatcher.answer(reply))

    def run(self, stop: threading.Event, reason: Callable[[], str]) -> None:
        """Until `stop` is set; then say goodbye, for the `reason`, and close the listener.

        Raises `TransportError`: the transport cannot go on.
        """
        try:
            while not stop.is_set():
                self.turn(TICK)
            self.turn(0.0)  # what the engine answered last
            self._dispatcher.farewell(reason())
            until = self._clock() + FAREWELL
            while (left := until - self._clock()) > 0:
                self._listener.poll(left)
        finally:
            self._listener.close()

    def turn(self, timeout: float) -> None:
        """Wait for events, up to `timeout` seconds, and handle everything there is."""
        events = self._listener.poll(timeout)
        while self._calls:
            self._calls.popleft()()
        for event in events:
            match event:
                case Received():
                    self._dispatcher.received(event)
                case Disconnected(lane, peer):
                    self._dispatcher.disconnected(lane, peer)
                case Connected():
                    pass  # a peer is known by its hello
        self._inbox.put(self._dispatcher.flush())
        self.turned = self._clock()

    def _call(self, call: Callable[[], None]) -> None:
        self._calls.append(call)
        self._listener.wake()
