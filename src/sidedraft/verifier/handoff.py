"""The thread that waits for a device in the engine's place."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

from sidedraft.device import Mark, Transfers
from sidedraft.verifier.state.cutting import Parcel

Arrived = Callable[[Parcel, Exception | None], None]
"""Called once for each parcel, in order: its rows are in its buffer, or the device failed."""


class Handoff:
    """One queue of copies from a device, and who waits for it: one lane's, so that the few rows of a proposal
    never wait for a prompt's.
    """

    def __init__(self, transfers: Transfers, arrived: Arrived, name: str) -> None:
        self.transfers = transfers
        self._arrived = arrived
        self._waiting: queue.SimpleQueue[tuple[Parcel, Mark] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, parcel: Parcel) -> None:
        """The parcel's copies are in the queue."""
        self._waiting.put((parcel, self.transfers.mark()))

    def stop(self, timeout: float) -> bool:
        """What is in the queue is waited for; False when that takes longer than `timeout` seconds."""
        self._waiting.put(None)
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (item := self._waiting.get()) is not None:
            parcel, mark = item
            failure = None
            try:
                mark.wait()
            except Exception as error:  # a device's fault, told where the parcel came from
                failure = error
            self._arrived(parcel, failure)
