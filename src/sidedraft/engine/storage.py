"""The rows themselves: one tensor of K/V, a row a slot, all layers of a position side by side.

So a context is gathered for all layers by one `index_select` of long rows, whatever the block size, and an
absent row is gathered from the null block: the gather itself is the `where` that keeps unwritten memory out.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from sidedraft.device import Runtime
from sidedraft.engine.plan import MemoryPlan
from sidedraft.engine.table import Slots


class RowStorage:
    """K/V rows [slots, layers * 2 * kv_heads * head_dim] in the draft's dtype; slot 0 is all zeros."""

    def __init__(
        self,
        plan: MemoryPlan,
        dtype: torch.dtype,
        runtime: Runtime,
        *,
        poison: bool = False,
    ) -> None:
        """`poison`: unwritten memory holds NaN, so that reading any of it shows (tests)."""
        slots = plan.blocks * plan.block_size
        self.rows = runtime.buffer(slots, plan.row_bytes // dtype.itemsize, dtype=dtype)
        if poison:
            self.rows.fill_(torch.nan)
        self.rows[: plan.block_size].zero_()

    @property
    def nbytes(self) -> int:
        return self.rows.untyped_storage().nbytes()

    def write(self, slots: Tensor, rows: Tensor) -> None:
        """Put rows [n, layers, 2, kv_heads, head_dim] at slots (int64 [n] on the device, distinct, not 0)."""
        self.rows.index_copy_(0, slots, rows.reshape(len(rows), -1))

    def copy(self, source: Slots, target: Slots) -> None:
        """Copy rows from slot to slot."""
        into = torch.from_numpy(target.astype(np.int64)).to(self.rows.device)
        self.rows.index_copy_(0, into, self.read(source))

    def read(self, slots: Slots) -> Tensor:
        """The rows at `slots`, flat: [n, layers * 2 * kv_heads * head_dim]."""
        return self.rows.index_select(0, torch.from_numpy(slots).to(self.rows.device))
