"""What waits to be sent on the two lanes of one session, and the bulk lane's credit."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Any

from sidedraft.verifier.state.counters import Counters
from sidedraft.verifier.state.credit import ByteCredit
from sidedraft.verifier.state.cutting import Parcel
from sidedraft.verifier.state.request import RequestState
from sidedraft.wire import messages as m

BULK_RETRY = 0.002
"""Seconds until a bulk message that found the transport's queue full is tried again."""


class Lanes:
    """Queues of one session. A control message is never held back; a bulk message waits for its credit."""

    def __init__(
        self, credit: int, by_id: dict[int, RequestState], counters: Counters, freed: list[Any]
    ) -> None:
        self._freed = freed  # staging buffers that can be used again
        self._by_id = by_id
        self._counters = counters
        self._credit = ByteCredit(credit)
        self._control: deque[Parcel | m.Release] = deque()
        self._bulk: deque[Parcel] = deque()
        self._moved_at = 0.0
        self._bulk_retry_at = 0.0

    def push(self, now: float, parcel: Parcel) -> None:
        if not parcel.bulk:
            self._control.append(parcel)
            return
        if not self._bulk:
            self._moved_at = now
        self._count(parcel, 1)
        self._bulk.append(parcel)

    def pop(self, now: float, *, bulk_up: bool) -> Parcel | m.Release | None:
        """The next message that may go: control first, then bulk when its connection and credit allow."""
        if self._control:
            return self._control.popleft()
        while self._bulk and not self._wanted(self._bulk[0]):
            self._drop_first()
        ready = bulk_up and now >= self._bulk_retry_at
        if self._bulk and ready and self._credit.fits(self._bulk[0].size):
            self._count(self._bulk[0], -1)
            return self._bulk.popleft()
        return None

    def sent(self, now: float, parcel: Parcel) -> None:
        """The transport took it."""
        self._counters.rows_sent += parcel.row_count()
        self._counters.bytes_rows += parcel.layout.tail
        if parcel.bulk:
            self._counters.bytes_bulk += parcel.size
            self._moved_at = now
            self._credit.spend(parcel.size, parcel.buffer)
        else:
            self._counters.bytes_control += parcel.size
            self.free(parcel)

    def put_back(self, now: float, item: Parcel | m.Release) -> None:
        """The transport did not take it; it stays first in its queue."""
        if isinstance(item, Parcel) and item.bulk:
            self._count(item, 1)
            self._bulk.appendleft(item)
            self._bulk_retry_at = now + BULK_RETRY
        else:
            self._control.appendleft(item)

    def credited(self, now: float, count: int) -> None:
        """The server returned bytes of bulk credit."""
        self._moved_at = now
        self._freed.extend(self._credit.give(count))

    def clear(self) -> set[int]:
        """Drop every parcel; returns the ids of the requests in them."""
        dropped = set()
        for item in self._control:
            if isinstance(item, Parcel):
                dropped.update(item.requests())
                self.free(item)
        self._control = deque(item for item in self._control if isinstance(item, m.Release))
        while self._bulk:
            dropped.update(self._drop_first().requests())
        return dropped

    def under_way(self) -> list[Any]:
        """Buffers of bulk messages that the server has not acknowledged: the transport may read them."""
        return self._credit.outstanding()

    def stalled(self, now: float, patience: float) -> bool:
        """Whether bulk messages have waited for so long without anything moving."""
        return bool(self._bulk) and now - self._moved_at >= patience

    def next_event(self, now: float, patience: float) -> float:
        """When a bulk message is to be tried again, or has waited for too long; infinity for never."""
        if not self._bulk:
            return math.inf
        stall = self._moved_at + patience
        return min(stall, self._bulk_retry_at) if self._bulk_retry_at > now else stall

    def free(self, parcel: Parcel) -> None:
        """Nothing reads its buffer any more."""
        if parcel.buffer is not None:
            self._freed.append(parcel.buffer)
            parcel.buffer = None

    def _drop_first(self) -> Parcel:
        parcel = self._bulk.popleft()
        self._count(parcel, -1)
        self.free(parcel)
        return parcel

    def _requests(self, parcel: Parcel) -> Iterator[tuple[int, RequestState | None]]:
        for piece in parcel.pieces:
            yield piece.advance.generation, self._by_id.get(piece.advance.request)

    def _wanted(self, parcel: Parcel) -> bool:
        """Whether a request of it is still in the generation it was made for."""
        return any(
            request is not None and request.open and request.generation == generation
            for generation, request in self._requests(parcel)
        )

    def _count(self, parcel: Parcel, change: int) -> None:
        """How many bulk messages of each request wait on our side."""
        for _, request in self._requests(parcel):
            if request is not None:
                request.queued += change
