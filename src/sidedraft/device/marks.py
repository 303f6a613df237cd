"""Points in a device's work that the host can ask about or wait for."""

from __future__ import annotations

from typing import Any, Protocol

import torch


class Mark(Protocol):
    """A point in a device's work."""

    def reached(self) -> bool:
        """Whether everything given to the device before the mark is finished. Does not block."""

    def wait(self) -> None:
        """Block until it is."""


class Reached:
    """Of work that was finished when the call that did it returned."""

    def reached(self) -> bool:
        return True

    def wait(self) -> None:
        return None


class CudaMark:
    """An event recorded on a stream. `api` is `torch.cuda`, but for tests."""

    def __init__(self, stream: Any, api: Any = torch.cuda) -> None:
        self._event = api.Event()
        self._event.record(stream)

    def reached(self) -> bool:
        return bool(self._event.query())

    def wait(self) -> None:
        self._event.synchronize()
