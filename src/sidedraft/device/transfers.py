"""Copies from a device to the host beside the device's other work, for a thread that must not wait for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

import torch
from torch import Tensor

from sidedraft.device.marks import CudaMark, Mark


class Transfers(Protocol):
    """One queue of copies. Enqueued by one thread; a mark may be waited for by another."""

    device: torch.device

    def orders(self, ready: object) -> bool:
        """Whether `beside` can wait for this event on the device; None is what the current stream holds."""

    def beside(self, ready: object = None) -> AbstractContextManager[None]:
        """What is given to the device inside runs in this queue, after `ready`, or after everything that the
        current stream holds by now. What the current stream is given afterwards runs after the queue has read
        its sources, so that these may be overwritten."""

    def copy(self, source: Tensor, host: Tensor) -> None:
        """Inside `beside`: copy to host memory made by `Runtime.host_buffer`. Does not wait."""

    def mark(self) -> Mark:
        """Reached when everything in the queue so far is done."""


class CudaTransfers:
    """A stream of its own. `api` is `torch.cuda`, but for tests."""

    def __init__(self, device: torch.device, api: Any = torch.cuda) -> None:
        self.device = device
        self._api = api
        self._stream = api.Stream(device)

    def orders(self, ready: object) -> bool:
        return ready is None or isinstance(ready, self._api.Event)

    @contextmanager
    def beside(self, ready: object = None) -> Iterator[None]:
        current = self._api.current_stream(self.device)
        if ready is None:
            self._stream.wait_stream(current)
        else:
            self._stream.wait_event(ready)
        try:
            with self._api.stream(self._stream):
                yield
        finally:
            current.wait_stream(self._stream)

    def copy(self, source: Tensor, host: Tensor) -> None:
        host.copy_(source, non_blocking=True)

    def mark(self) -> Mark:
        return CudaMark(self._stream, self._api)
