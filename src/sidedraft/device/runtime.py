"""What the engine needs of a device besides arithmetic: memory it can copy from, and knowing when it is done.

On the CPU everything is finished when a call returns, so that a mark is always reached and a fetch is free.
"""

from __future__ import annotations

import contextlib
import math
import mmap
from typing import Protocol

import torch
from torch import Tensor

from sidedraft.device.marks import CudaMark, Mark, Reached
from sidedraft.device.transfers import CudaTransfers, Transfers


class Runtime(Protocol):
    """One device, used by one thread on that thread's current stream."""

    device: torch.device
    graphs: bool
    """Whether a sequence of kernels of fixed shapes can be captured once and replayed."""

    def buffer(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """Uninitialised memory on the device, large and kept for good. Raises `MemoryError` or torch's own
        `OutOfMemoryError`."""

    def host_buffer(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """Uninitialised host memory that the device copies from and to without blocking."""

    def upload(self, source: Tensor, target: Tensor) -> None:
        """Copy host memory to the device in stream order; `source` may be reused after a later mark."""

    def fetch(self, source: Tensor) -> Tensor:
        """The tensor on the host; its values are there once a later mark is reached."""

    def mark(self) -> Mark: ...

    def transfers(self) -> Transfers | None:
        """A new queue of copies to the host; None where host memory is device memory."""


class CpuRuntime:
    """Host memory is device memory."""

    device = torch.device("cpu")
    graphs = False

    def buffer(self, *shape: int, dtype: torch.dtype) -> Tensor:
        """In huge pages where the system has them: scattered rows are then gathered a fifth faster."""
        count = math.prod(shape)
        size = count * dtype.itemsize
        try:
            memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise MemoryError(f"{size} bytes: {error.strerror}") from error
        if hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel built without them
                memory.madvise(mmap.MADV_HUGEPAGE)
        return torch.frombuffer(memory, dtype=dtype, count=count).view(shape)

    def host_buffer(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype)

    def upload(self, source: Tensor, target: Tensor) -> None:
        if source.data_ptr() != target.data_ptr():
            target.copy_(source)

    def fetch(self, source: Tensor) -> Tensor:
        return source

    def mark(self) -> Mark:
        return Reached()

    def transfers(self) -> None:
        return None


class CudaRuntime:
    """Page-locked host memory and events on the current stream."""

    graphs = True

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def buffer(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=self.device)

    def host_buffer(self, *shape: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(shape, dtype=dtype, pin_memory=True)

    def upload(self, source: Tensor, target: Tensor) -> None:
        target.copy_(source, non_blocking=True)

    def fetch(self, source: Tensor) -> Tensor:
        host = torch.empty(source.shape, dtype=source.dtype, pin_memory=True)
        return host.copy_(source, non_blocking=True)

    def mark(self) -> Mark:
        return CudaMark(torch.cuda.current_stream(self.device))

    def transfers(self) -> Transfers:
        return CudaTransfers(self.device)


def runtime_for(device: torch.device) -> Runtime:
    """The runtime of a device as `resolve_device` gave it. Raises `ValueError` for another kind."""
    if device.type == "cpu":
        return CpuRuntime()
    if device.type == "cuda":
        return CudaRuntime(device)
    raise ValueError(f"device: {str(device)!r} is not supported; expected cpu or cuda")
