"""The memory of a query pass: contexts gathered side by side, in shapes that are few and static."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sidedraft.device import Runtime
from sidedraft.drafts.base import DraftShape
from sidedraft.engine.plan import MemoryPlan
from sidedraft.engine.storage import RowStorage


class GatheredContext:
    """`drafts.base.Context` over a part of the scratch: B contexts of C columns and Q of the query block."""

    def __init__(self, rows: Tensor, positions: Tensor, present: Tensor, query_rows: int) -> None:
        """rows: [B, C + Q, layers, 2, kv_heads, head_dim]; positions, present: [B, C + Q]."""
        self.positions = positions
        self.present = present
        self._rows = rows
        self._block = rows[:, rows.shape[1] - query_rows :]

    def write_block(self, layer: int, keys: Tensor, values: Tensor) -> None:
        self._block[:, :, layer, 0] = keys
        self._block[:, :, layer, 1] = values

    def keys(self, layer: int) -> Tensor:
        return self._rows[:, :, layer, 0].transpose(1, 2)

    def values(self, layer: int) -> Tensor:
        return self._rows[:, :, layer, 1].transpose(1, 2)


class Scratch:
    """Everything a query pass reads and writes but weights and activations; allocated once, by the plan.

    `slots` and `heads` are filled on the host, uploaded as they are, and all else happens on the device
    without a look at the values, so that a pass of one shape could be a captured graph.
    """

    def __init__(
        self,
        plan: MemoryPlan,
        shape: DraftShape,
        dtype: torch.dtype,
        runtime: Runtime,
        *,
        poison: bool = False,
    ) -> None:
        self._runtime = runtime
        device, columns, batch = runtime.device, plan.scratch_columns, plan.max_batch
        self._row_shape = (shape.layers, 2, shape.kv_heads, shape.head_dim)
        self._rows = runtime.buffer(columns, plan.row_bytes // dtype.itemsize, dtype=dtype)
        if poison:
            self._rows.fill_(torch.nan)
        self._host_slots = runtime.host_buffer(columns, dtype=torch.int32)
        self._host_heads = runtime.host_buffer(3, batch, dtype=torch.int64)
        self._slots = self._host_slots.to(device)  # the same memory on the CPU
        self._heads = self._host_heads.to(device)
        self._positions = torch.empty(columns, dtype=torch.int64, device=device)
        self._present = torch.empty(columns, dtype=torch.bool, device=device)
        self._steps = torch.arange(columns, device=device)
        self._uploaded = runtime.mark()

    @property
    def nbytes(self) -> int:
        tensors = (self._rows, self._slots, self._heads, self._positions, self._present, self._steps)
        return sum(tensor.untyped_storage().nbytes() for tensor in tensors)

    def begin(self, batch: int, columns: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Host tables of the next pass, zeroed, to be filled in: slots int32 [B, C + Q], of which the last Q
        columns stay 0, and heads int64 [3, B]: first column's position, anchor position, anchor token."""
        self._uploaded.wait()
        slots = self._host_slots[: batch * columns].numpy().reshape(batch, columns)
        heads = self._host_heads.view(-1)[: 3 * batch].numpy().reshape(3, batch)
        slots.fill(0)
        heads.fill(0)
        return slots, heads

    def gather(
        self, storage: RowStorage, batch: int, columns: int, query_rows: int
    ) -> tuple[GatheredContext, Tensor, Tensor]:
        """The contexts of the tables last filled in, with anchors and their positions (int64 [B] each)."""
        cells = batch * columns
        slots, heads = self._slots[:cells], self._heads.view(-1)[: 3 * batch]
        self._runtime.upload(self._host_slots[:cells], slots)
        self._runtime.upload(self._host_heads.view(-1)[: 3 * batch], heads)
        self._uploaded = self._runtime.mark()
        starts, ends, anchors = heads.view(3, batch)

        rows = self._rows[:cells]
        torch.index_select(storage.rows, 0, slots, out=rows)
        present = torch.ne(slots, 0, out=self._present[:cells]).view(batch, columns)
        present[:, columns - query_rows :] = True
        positions = self._positions[:cells].view(batch, columns)
        torch.add(starts[:, None], self._steps[:columns], out=positions)
        torch.add(ends[:, None], self._steps[:query_rows], out=positions[:, columns - query_rows :])
        context = GatheredContext(rows.view(batch, columns, *self._row_shape), positions, present, query_rows)
        return context, anchors, ends
