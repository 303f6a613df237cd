"""What the engine will hold in memory, decided before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from sidedraft.drafts.base import DraftShape
from sidedraft.engine.buckets import batch_bucket, context_bucket
from sidedraft.settings import SettingsError, format_bytes

COLUMN_BYTES = 4 + 8 + 8 + 1
"""Of a scratch column besides its row: slot (int32), position and count (int64), present (bool)."""

QUERY_BYTES = 3 * 8
"""Of a query block: first position, anchor position, anchor token (int64 each)."""

KEPT_BYTES = 4 + 4
"""Host memory of a committed position of a request: token and slot (int32 each)."""

BLOCK_BYTES = 200
"""Host memory of a block's life and index entry, about."""


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Sizes of everything the engine allocates. `pool_bytes + scratch_bytes <= kv_memory`."""

    kv_memory: int
    block_size: int
    """Rows of a block."""
    row_bytes: int
    """K/V of one position, all layers."""
    blocks: int
    """Blocks of the pool, with the null block."""
    scratch_columns: int
    """Columns (context and query rows of all query blocks) that one forward can hold."""
    max_batch: int
    """Query blocks that one forward can hold."""
    context_limit: int
    """Context rows that one proposal can be given."""
    window: int | None
    """A key is visible iff anchor position - its position < window; None is no bound."""
    max_requests: int
    max_depth: int
    query_rows: int
    """Rows of the largest query block."""
    max_position: int
    ingest_bytes: int
    """Host staging of rows on their way in; as much again on a device of its own."""

    @property
    def reach(self) -> int | None:
        """The window that proposals have, which memory may make shorter; None when they see all rows."""
        return self.context_limit + 1 if self.context_limit < self.max_position else None

    @property
    def pool_bytes(self) -> int:
        return self.blocks * self.block_size * self.row_bytes

    @property
    def scratch_bytes(self) -> int:
        return _scratch_bytes(self.scratch_columns, self.max_batch, self.row_bytes)

    @property
    def pool_rows(self) -> int:
        """Rows that requests and the index can hold together."""
        return (self.blocks - 1) * self.block_size

    def table(self) -> list[tuple[str, str]]:
        """What is held, and how much, for people."""
        window = "all rows" if self.window is None else f"window {self.window}"
        host = self.max_requests * self.max_position * KEPT_BYTES
        return [
            (
                f"K/V pool, {self.pool_rows:,} rows in blocks of {self.block_size}",
                format_bytes(self.pool_bytes),
            ),
            (
                f"scratch of {self.scratch_columns:,} columns, {self.context_limit:,} a proposal, {window}",
                format_bytes(self.scratch_bytes),
            ),
            ("given by --kv-memory", format_bytes(self.kv_memory)),
            ("besides: row staging", format_bytes(self.ingest_bytes)),
            ("besides: prefix index, at most", format_bytes(self.blocks * BLOCK_BYTES)),
            (f"besides: tokens of {self.max_requests} requests, at most", format_bytes(host)),
        ]

    def __str__(self) -> str:
        return "\n".join(f"{size:>12}  {what}" for what, size in self.table())


def plan_memory(
    shape: DraftShape,
    dtype: torch.dtype,
    *,
    kv_memory: int,
    max_requests: int,
    max_depth: int | None = None,
    window: int | None = None,
    max_position: int | None = None,
    block_size: int,
    ingest_bytes: int = 4 << 20,
) -> MemoryPlan:
    """Divide `kv_memory` bytes between the pool and the scratch of query passes.

    The scratch gets a quarter at most, or up to half where one proposal over the longest context needs it;
    beyond that a proposal sees the newest `context_limit` rows only. `max_depth`, `window` and `max_position`
    default to the draft's own. Raises `SettingsError` where something does not fit.
    """
    depth = shape.max_depth if max_depth is None else max_depth
    if not 1 <= depth <= shape.max_depth:
        raise SettingsError("max_depth", depth, f"1 to {shape.max_depth}, the draft's own depth")
    end = shape.max_position if max_position is None else min(max_position, shape.max_position)
    window = shape.window if window is None else window
    row_bytes = shape.layers * 2 * shape.kv_heads * shape.head_dim * dtype.itemsize
    column, query = row_bytes + COLUMN_BYTES, shape.query_rows(depth)

    visible = end if window is None else min(window - 1, end)
    longest = context_bucket(visible, max(visible, 1)) + query
    batch = batch_bucket(max_requests)
    usable = kv_memory - batch * QUERY_BYTES
    columns = min(batch * longest, max(usable // 4 // column, min(longest, usable // 2 // column)))
    block_bytes = block_size * row_bytes
    blocks = min((usable - columns * column) // block_bytes, (2**31 - 1) // block_size)
    if columns <= query or blocks < 2:
        least = batch * QUERY_BYTES + 4 * max((query + 1) * column, 2 * block_bytes)
        raise SettingsError("kv_memory", kv_memory, f"at least {least} bytes for this draft")
    return MemoryPlan(
        kv_memory=kv_memory,
        block_size=block_size,
        row_bytes=row_bytes,
        blocks=blocks,
        scratch_columns=columns,
        max_batch=batch,
        context_limit=min(visible, columns - query),
        window=window,
        max_requests=max_requests,
        max_depth=depth,
        query_rows=query,
        max_position=end,
        ingest_bytes=max(ingest_bytes, shape.row_width * 4),
    )


def _scratch_bytes(columns: int, batch: int, row_bytes: int) -> int:
    return columns * (row_bytes + COLUMN_BYTES) + batch * QUERY_BYTES
