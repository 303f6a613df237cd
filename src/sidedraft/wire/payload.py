"""The payload frame of a batch: token ids, then rows or confidences.

    int32 token ids of all rows | padding to 64 bytes | second part

Both parts are little-endian, contiguous, in the order of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sidedraft.wire.advance import NO_TOKENS, Tokens
from sidedraft.wire.limits import ALIGNMENT

Frame = bytes | bytearray | memoryview
"""One frame: anything that offers a contiguous buffer of bytes."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things stand in a payload."""

    tokens: int
    """Token ids in the first part."""
    tail: int
    """Bytes of the second part."""

    @property
    def tail_at(self) -> int:
        """Offset of the second part."""
        return -(-4 * self.tokens // ALIGNMENT) * ALIGNMENT

    @property
    def size(self) -> int:
        """Bytes of the whole payload; 0 means that there is no payload frame."""
        return self.tail_at + self.tail

    def split(self, payload: memoryview) -> tuple[Tokens, memoryview]:
        """The parts of a payload of exactly `size` bytes, without a copy."""
        tokens = np.frombuffer(payload, dtype=np.int32, count=self.tokens) if self.tokens else NO_TOKENS
        return tokens, payload[self.tail_at : self.size]

    def pack(
        self, buffer: memoryview, tokens: Sequence[Tokens], tail: Sequence[npt.NDArray[np.generic]]
    ) -> memoryview:
        """Copy both parts into the beginning of `buffer` and return the part that was used.

        The padding is cleared: a reused buffer must not carry bytes of another message to the peer.
        """
        used = buffer[: self.size]
        if tokens:
            out = np.frombuffer(used, dtype=np.int32, count=self.tokens)
            np.concatenate(tokens, out=out, casting="no")
        used[4 * self.tokens : self.tail_at] = bytes(self.tail_at - 4 * self.tokens)
        if tail:
            end = np.frombuffer(used, dtype=np.uint8)[self.tail_at :]
            np.concatenate([_as_bytes(part) for part in tail], out=end)
        return used


def expected_size(layout: Layout | None) -> str:
    """For an error on a payload: what the header asks for; None stands for counts beyond any payload."""
    return "no count beyond any payload" if layout is None else f"{layout.size} bytes, by its header"


def _as_bytes(part: npt.NDArray[np.generic]) -> npt.NDArray[np.uint8]:
    return np.ascontiguousarray(part).reshape(-1).view(np.uint8)


def offsets(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Begin of each row's share, and the total as the last value: shape [n + 1]."""
    bounds = np.zeros(len(counts) + 1, dtype=np.int64)
    np.cumsum(counts, out=bounds[1:])
    return bounds
