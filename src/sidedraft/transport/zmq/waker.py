"""Lets another thread end a wait."""

from __future__ import annotations

import contextlib
import socket


class Waker:
    """Poll it for reading; `wake` makes it readable."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        return self._reader.fileno()

    def wake(self) -> None:
        """From any thread, also after `close`."""
        with contextlib.suppress(OSError):  # full: it is awake already; closed: nobody waits
            self._writer.send(b"\0")

    def drain(self) -> None:
        """Make it wait again."""
        with contextlib.suppress(BlockingIOError):
            while self._reader.recv(4096):
                pass

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
