"""Byte credits of the bulk connection, and the send buffers they set free."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any


class ByteCredit:
    """Bytes sent on the bulk lane and not yet acknowledged, oldest first.

    The lane delivers in order, so that a credit of any message says that all older ones have arrived as
    well: taking returned bytes off the front never frees a buffer too early.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._sent: deque[tuple[int, Any]] = deque()
        self._partial = 0

    def fits(self, count: int) -> bool:
        """Whether a message of `count` payload bytes may be sent now."""
        return self.used - self._partial + count <= self.limit

    def spend(self, count: int, buffer: Any) -> None:
        """A message of `count` payload bytes went out of `buffer`."""
        self.used += count
        self._sent.append((count, buffer))

    def give(self, count: int) -> Iterator[Any]:
        """The peer returned `count` bytes: yields buffers that are free again. More than was sent is cut."""
        self._partial = min(self._partial + count, self.used)
        while self._sent and self._sent[0][0] <= self._partial:
            size, buffer = self._sent.popleft()
            self._partial -= size
            self.used -= size
            if buffer is not None:  # a message without rows has none
                yield buffer

    def outstanding(self) -> list[Any]:
        """Buffers the peer has not acknowledged."""
        return [buffer for _, buffer in self._sent if buffer is not None]
