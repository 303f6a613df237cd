"""From rows on the wire to K/V rows in the pool, a bounded slice at a time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sidedraft.device import Runtime
from sidedraft.drafts.base import Draft
from sidedraft.drafts.row_codec import decode
from sidedraft.engine.storage import RowStorage
from sidedraft.engine.table import Slots
from sidedraft.wire.rows import RowFormat

RowBytes = npt.NDArray[np.uint8]


@dataclass(slots=True)
class _Rows:
    data: RowBytes
    """uint8 [n, row_bytes]"""
    positions: npt.NDArray[np.int64]
    slots: Slots
    ticket: int


@dataclass(slots=True)
class Written:
    """One slice that was computed: which tickets its rows belong to, and whether each row is finite."""

    tickets: npt.NDArray[np.int64]
    finite: Tensor
    """bool [n]; on the host once the launch is complete."""


class Ingest:
    """Collects rows of many requests and turns them into K/V together."""

    def __init__(self, draft: Draft, storage: RowStorage, runtime: Runtime, staging_bytes: int) -> None:
        self._draft = draft
        self._storage = storage
        self._runtime = runtime
        self._aux_width = draft.shape.row_width
        self._staging = runtime.host_buffer(staging_bytes, dtype=torch.uint8)
        self._on_device = self._staging.to(draft.device)  # the same memory on the CPU
        self._staged = runtime.mark()
        self._waiting: dict[RowFormat, list[_Rows]] = {}
        self.computed = 0
        """Rows that were made into keys and values."""

    def add(self, row_format: RowFormat, data: RowBytes, first: int, slots: Slots, ticket: int) -> None:
        """Rows of positions `first`, `first + 1`, ... for `slots`; those with slot 0 are left out.

        `data` must stay as it is until `flush`.
        """
        wanted = np.flatnonzero(slots)
        if len(wanted) == 0:
            return
        if len(wanted) < len(slots):
            data, slots = data[wanted], slots[wanted]
        rows = _Rows(data, wanted + first, slots, ticket)
        self._waiting.setdefault(row_format, []).append(rows)

    def flush(self) -> list[Written]:
        """Compute and store everything added so far."""
        written = []
        for row_format, waiting in self._waiting.items():
            data = waiting[0].data if len(waiting) == 1 else np.concatenate([w.data for w in waiting])
            positions = np.concatenate([w.positions for w in waiting])
            slots = np.concatenate([w.slots for w in waiting]).astype(np.int64)
            tickets = np.repeat([w.ticket for w in waiting], [len(w.slots) for w in waiting])
            most = max(1, len(self._staging) // row_format.row_bytes(self._aux_width))
            for low in range(0, len(data), most):
                part = slice(low, low + most)
                finite = self._compute(row_format, data[part], positions[part], slots[part])
                written.append(Written(tickets[part], finite))
        self._waiting.clear()
        return written

    def discard(self) -> None:
        """Forget what was added and not computed."""
        self._waiting.clear()

    def _compute(
        self,
        row_format: RowFormat,
        data: RowBytes,
        positions: npt.NDArray[np.int64],
        slots: npt.NDArray[np.int64],
    ) -> Tensor:
        self._staged.wait()
        staging = self._staging[: data.size]
        np.copyto(staging.numpy().reshape(data.shape), data)
        on_device = self._on_device[: data.size]
        self._runtime.upload(staging, on_device)
        self._staged = self._runtime.mark()
        draft, device = self._draft, self._draft.device
        values = decode(on_device.view(data.shape), row_format, draft.dtype)
        to_rows = draft.context_rows if row_format.projection is None else draft.projected_rows
        rows = to_rows(values, torch.from_numpy(positions).to(device))
        self._storage.write(torch.from_numpy(slots).to(device), rows)
        self.computed += len(data)
        return self._runtime.fetch(rows.flatten(1).isfinite().all(1))
