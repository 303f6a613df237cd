"""Who may come in: libzmq asks here, with ZAP (ZeroMQ's RFC 27), for each connection that proved a key."""

from __future__ import annotations

import logging
import time
from typing import Any

import zmq
from zmq.utils import z85

from sidedraft.transport.clients import Client, ClientList
from sidedraft.transport.keys import KEY_BYTES
from sidedraft.transport.limited import Limited
from sidedraft.transport.zmq.curve import failure

_log = logging.getLogger(__name__)

LOOK_INTERVAL = 1.0
"""Seconds between two looks at the file of clients."""

_ENDPOINT = "inproc://zeromq.zap.01"
_VERSION = b"1.0"
_ADMITTED, _REFUSED, _BROKEN = b"200", b"400", b"500"


class Gate:
    """Owned by the listener's thread. `socket` is to be polled; while nobody does, nobody comes in."""

    def __init__(self, context: zmq.Context[zmq.Socket[Any]], clients: ClientList) -> None:
        self._clients = clients
        self.name = ""
        """Of the listener, in the log."""
        self._limited = Limited()
        self._next_look = time.monotonic() + LOOK_INTERVAL
        self.socket = context.socket(zmq.SocketType.REP)
        self.socket.setsockopt(zmq.SocketOption.LINGER, 0)
        self.socket.bind(_ENDPOINT)

    def client(self, key: str) -> Client | None:
        """Who holds this key, if it is somebody who may come in."""
        return self._clients.get(key)

    def read(self) -> None:
        """Answer every question that waits."""
        while True:
            try:
                question = self.socket.recv_multipart(zmq.Flag.DONTWAIT)
            except zmq.Again:
                return
            self.socket.send_multipart(self._answer(question), zmq.Flag.DONTWAIT)

    def changed(self) -> bool:
        """Look at the file, at most once in `LOOK_INTERVAL`; true when somebody's rights are others now."""
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + LOOK_INTERVAL
        return self._clients.refresh()

    def failed(self, kind: int, value: int) -> None:
        """A handshake failed, as a monitor tells."""
        why = failure(kind, value)
        # What failed for its key was told when the key was looked up, with the key.
        if why and kind != zmq.Event.HANDSHAKE_FAILED_AUTH:
            self.say(why, f"refused a handshake: {why}")

    def say(self, kind: str, text: str) -> None:
        """One line, unless one of this kind was written a moment ago."""
        more = self._limited.due(kind, time.monotonic())
        if more is not None:
            _log.warning("%s: %s%s", self.name, text, more)

    def close(self) -> None:
        self.socket.close()

    def _answer(self, question: list[bytes]) -> list[bytes]:
        # Made by libzmq in this process: version, number, domain, address, id, mechanism, the key.
        number = question[1] if len(question) > 1 else b""
        if len(question) != 7 or question[5] != b"CURVE" or len(question[6]) != KEY_BYTES:
            return [_VERSION, number, _BROKEN, b"no question about a key", b"", b""]
        address, key = question[3].decode("ascii", "replace"), z85.encode(question[6]).decode()
        if self._clients.get(key) is not None:
            return [_VERSION, number, _ADMITTED, b"", key.encode(), b""]
        if self._clients.was_revoked(key):
            kind, why = "revoked", "was revoked"
        else:
            kind, why = "unknown", f"is not in {self._clients.path}"
        self.say(kind, f"refused a connection from {address or 'this host'}: its key {key} {why}")
        return [_VERSION, number, _REFUSED, b"", b"", b""]
