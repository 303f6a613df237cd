"""Memory that payloads are sent from: segments of one size, made when needed and kept, bounded in number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Memory = npt.NDArray[np.uint8]


def plain(size: int) -> Memory:
    """Uninitialised host memory."""
    return np.empty(size, dtype=np.uint8)


@dataclass(slots=True, eq=False)
class Buffer:
    """Memory of one payload."""

    memory: Memory
    pool: BufferPool


class BufferPool:
    """At most `most` buffers of `size` bytes are handed out at once. Not thread-safe.

    Args:
        make: gives memory of so many bytes; pinned for rows that come from a device.
    """

    def __init__(self, size: int, most: int, make: Callable[[int], Memory] = plain) -> None:
        self.size = size
        self._most = most
        self._make = make
        self._idle: list[Buffer] = []
        self._out: set[Buffer] = set()

    @property
    def in_use(self) -> int:
        """Buffers handed out and neither given back nor abandoned."""
        return len(self._out)

    def take(self) -> Buffer | None:
        """A buffer that nobody else has, or None when as many as may be are in use."""
        if len(self._out) >= self._most:
            return None
        # The one given back last: its pages are likeliest to be in a cache.
        buffer = self._idle.pop() if self._idle else Buffer(self._make(self.size), self)
        self._out.add(buffer)
        return buffer

    def give(self, buffer: Buffer) -> None:
        """Nothing reads or writes it any more. Raises `KeyError` for one that is not handed out."""
        self._out.remove(buffer)
        self._idle.append(buffer)

    def abandon(self, buffer: Buffer) -> None:
        """Its fate is not known: it is never handed out again, and may be replaced. Raises as `give`."""
        self._out.remove(buffer)

    def reserve(self, count: int) -> int:
        """Make buffers now rather than when they are needed, and touch their pages, until there are `count`
        of them or as many as may be; gives how many there are."""
        held = len(self._out) + len(self._idle)
        for _ in range(min(count, self._most) - held):
            memory = self._make(self.size)
            memory.fill(0)
            self._idle.append(Buffer(memory, self))
        return len(self._out) + len(self._idle)
