"""A `drafts.base.Context` over plain tensors: one request or a batch, with holes and padding where wanted."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sidedraft.drafts.base import DraftShape


class DenseContext:
    """Rows laid out side by side. Columns that are not present hold zeros, and a position of no meaning."""

    def __init__(
        self,
        shape: DraftShape,
        rows: Sequence[Tensor],
        positions: Sequence[Tensor],
        anchors: Tensor,
        query_rows: int,
        *,
        columns: int | None = None,
    ) -> None:
        """rows[b]: [n_b, layers, 2, kv_heads, head_dim] at positions[b]: int64 [n_b]; anchors: int64 [B]."""
        width = columns if columns is not None else max(len(part) for part in rows)
        total = width + query_rows
        self.positions = torch.full((len(rows), total), 1 << 40)
        self.present = torch.zeros(len(rows), total, dtype=torch.bool)
        self.rows = torch.zeros(
            len(rows), total, shape.layers, 2, shape.kv_heads, shape.head_dim, dtype=rows[0].dtype
        )
        for b, (part, at) in enumerate(zip(rows, positions, strict=True)):
            self.rows[b, : len(part)] = part
            self.positions[b, : len(part)] = at
            self.present[b, : len(part)] = True
        self.positions[:, width:] = anchors[:, None] + torch.arange(query_rows)
        self.present[:, width:] = True
        self._width = width

    def write_block(self, layer: int, keys: Tensor, values: Tensor) -> None:
        self.rows[:, self._width :, layer, 0] = keys
        self.rows[:, self._width :, layer, 1] = values

    def keys(self, layer: int) -> Tensor:
        return self.rows[:, :, layer, 0].transpose(1, 2)

    def values(self, layer: int) -> Tensor:
        return self.rows[:, :, layer, 1].transpose(1, 2)
