"""How the engine's rows get into messages: one copy, straight to where the payload needs them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from sidedraft.verifier.buffers import Buffer, Memory
from sidedraft.verifier.state.cutting import Parcel
from sidedraft.verifier.submission import Rows
from sidedraft.wire.payload import Layout

Put = Callable[[Rows, Memory], None]
"""`put(rows, out)`: writes rows [n, width] as the wire carries them to `out`, uint8 [n x row bytes], now
or (in a device's queue) soon."""


def fill(parcel: Parcel, rows: Sequence[Rows | None], buffer: Buffer, row_bytes: int, put: Put) -> None:
    """Put a parcel's tokens and rows into its payload; `rows` are the caller's, one an entry of the step."""
    memory = buffer.memory[: parcel.size]
    _pack_tokens(parcel, memory)
    parcel.buffer = buffer
    at = parcel.layout.tail_at
    for piece in parcel.pieces:
        count = len(piece.rows)
        own = memory[at : at + count * row_bytes]
        at += len(own)
        source = rows[piece.source]
        if count and source is not None:
            put(source[piece.rows.start : piece.rows.stop], own)
            piece.advance.rows = own.reshape(count, row_bytes)
        else:
            piece.advance.rows = None


def fill_without_rows(parcel: Parcel) -> None:
    """The rows stay here, a hole in the draft's context. Tokens travel: those are always complete."""
    parcel.layout = Layout(parcel.layout.tokens, 0)
    parcel.buffer = None
    _pack_tokens(parcel, np.empty(parcel.size, dtype=np.uint8))
    for piece in parcel.pieces:
        piece.advance.rows = None


def _pack_tokens(parcel: Parcel, memory: Memory) -> None:
    tokens = []
    for piece in parcel.pieces:
        if piece.advance.opening is not None:
            tokens.append(piece.advance.opening.prefix)
        tokens.append(piece.advance.tokens)
    parcel.payload = parcel.layout.pack(memory.data, tokens, ())
