"""Send buffers, and how the engine's rows get into them: one copy, straight to where the payload needs them.

A buffer of the control lane is free once the transport has copied it. One of the bulk lane is read by the
transport after the send, so it is free when its credit is back; when the session ends before that, nobody
knows, and the buffer is abandoned to the transport and replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from sidedraft.drafts.projection import ContextProjection
from sidedraft.verifier.encoding import encode_rows
from sidedraft.verifier.state.cutting import Parcel
from sidedraft.verifier.submission import Rows
from sidedraft.wire.agreement import Agreement
from sidedraft.wire.payload import Layout


@dataclass(slots=True, eq=False)
class Buffer:
    """Memory of one payload."""

    memory: npt.NDArray[np.uint8]
    pool: BufferPool


class BufferPool:
    """Buffers of one size, made when needed, at most `most` in use at once."""

    def __init__(self, size: int, most: int) -> None:
        self.size = size
        self.in_use = 0
        self._most = most
        self._idle: list[Buffer] = []

    def take(self) -> Buffer | None:
        """A buffer, or None when all are in use."""
        if self._idle:
            self.in_use += 1
            return self._idle.pop()
        if self.in_use >= self._most:
            return None
        self.in_use += 1
        return Buffer(np.empty(self.size, dtype=np.uint8), self)

    def give(self, buffer: Buffer) -> None:
        """It can be used again."""
        self.in_use -= 1
        self._idle.append(buffer)

    def abandon(self) -> None:
        """One of them will not come back."""
        self.in_use -= 1


def fill(
    parcel: Parcel,
    rows: Sequence[Rows | None],
    agreement: Agreement,
    buffer: Buffer | None,
    projection: ContextProjection | None = None,
) -> None:
    """Put a parcel's tokens and rows into its payload; `rows` are the caller's, one an entry of the step.

    Without a buffer the rows stay here, a hole in the draft's context, and only tokens travel: those are
    always complete.
    """
    tokens = []
    for piece in parcel.pieces:
        if piece.advance.opening is not None:
            tokens.append(piece.advance.opening.prefix)
        tokens.append(piece.advance.tokens)
    if buffer is None:
        parcel.layout = Layout(parcel.layout.tokens, 0)
        memory = np.empty(parcel.size, dtype=np.uint8)
    else:
        memory = buffer.memory[: parcel.size]
    parcel.payload = parcel.layout.pack(memory.data, tokens, ())
    parcel.buffer = buffer
    at = parcel.layout.tail_at
    for piece in parcel.pieces:
        count = len(piece.rows) if buffer is not None else 0
        own = memory[at : at + count * agreement.row_bytes]
        at += len(own)
        source = rows[piece.source]
        if count and source is not None:
            encode_rows(source[piece.rows.start : piece.rows.stop], agreement.row_format, own, projection)
            piece.advance.rows = own.reshape(count, agreement.row_bytes)
        else:
            piece.advance.rows = None
