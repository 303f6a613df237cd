"""A key/value cache whose rows each have a length of their own.

transformers' caches keep one length for a whole batch, so requests of different lengths, or rows rejected in
some requests only, need padding on the left. Here every request is left-aligned and is told at each forward
where its new rows go; rolling back is passing a smaller length next time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


@dataclass(slots=True)
class _Places:
    """Where the rows of the forward under way go; shared by all layers of one cache."""

    columns: Tensor
    """int64 [B, q]; padding points at the spill column."""
    extent: int
    """Columns that attention reads: the greatest end of any request."""


class _RowLayer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of one decoder layer: [B, kv_heads, capacity + 1, head_dim], allocated at first use."""

    is_sliding = False

    def __init__(self, batch: int, capacity: int, places: _Places) -> None:
        super().__init__()
        self._batch = batch
        self._columns = capacity + 1
        self._places = places

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        heads = key_states.shape[1]
        # Zeros, not empty memory: a padding query may look at columns that were never written.
        self.keys = key_states.new_zeros(self._batch, heads, self._columns, key_states.shape[3])
        self.values = value_states.new_zeros(self._batch, heads, self._columns, value_states.shape[3])
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
        """Write [B, kv_heads, q, head_dim] at the current places; return views of all columns in use."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        requests = torch.arange(self._batch, device=key_states.device)[:, None]
        columns, extent = self._places.columns, self._places.extent
        self.keys[requests, :, columns] = key_states.transpose(1, 2)
        self.values[requests, :, columns] = value_states.transpose(1, 2)
        return self.keys[:, :, :extent], self.values[:, :, :extent]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self._places.extent, 0

    def get_seq_length(self) -> int:
        return self._places.extent

    def get_max_length(self) -> int:
        return self._columns - 1


class RowCache(Cache):  # type: ignore[misc]
    """Keys and values of `batch` requests of up to `capacity` positions each.

    The cache itself remembers no lengths: `place` states them for the next forward.
    """

    def __init__(self, layers: int, batch: int, capacity: int) -> None:
        if layers < 1 or batch < 1 or capacity < 1:
            raise ValueError(f"layers, batch and capacity must be positive, got {(layers, batch, capacity)}")
        self.batch = batch
        self.capacity = capacity
        self._places = _Places(torch.zeros(batch, 1, dtype=torch.int64), 0)
        super().__init__(layers=[_RowLayer(batch, capacity, self._places) for _ in range(layers)])

    def place(self, lengths: Tensor, counts: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Say where the next forward's rows stand.

        lengths, counts: int64 [B]; row j < counts[b] of request b stands at position lengths[b] + j, later
        columns are padding. Returns positions, int64 [B, width], and visible, bool [B, 1, width, extent]: a
        row sees its own position and all before it. Raises ValueError when a request would outgrow the cache.
        """
        ends = lengths + counts
        longest = max(1, int(ends.max()))
        if longest > self.capacity:
            raise ValueError(f"a request of {longest} positions does not fit a cache of {self.capacity}")
        columns = torch.arange(width, device=lengths.device)
        positions = lengths[:, None] + columns
        valid = columns < counts[:, None]
        self._places.columns = torch.where(valid, positions, self.capacity)
        self._places.extent = longest
        seen = torch.arange(longest, device=lengths.device)
        return positions, (seen <= positions[..., None])[:, None]

    @torch.inference_mode()
    def copy_from(self, other: RowCache, length: int) -> None:
        """Give every request the first `length` positions of `other`'s first one: a prefix all share."""
        for own, shared in zip(self.layers, other.layers, strict=True):
            if not own.is_initialized:
                own.lazy_initialization(shared.keys, shared.values)
            own.keys[:, :, :length] = shared.keys[:1, :, :length]
            own.values[:, :, :length] = shared.values[:1, :, :length]
