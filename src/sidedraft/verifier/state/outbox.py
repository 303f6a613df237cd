"""What is sent next, and what becomes of what cannot be sent."""

from __future__ import annotations

from collections import deque
from typing import Any

from sidedraft.verifier.state.counters import Counters
from sidedraft.verifier.state.cutting import Parcel
from sidedraft.verifier.state.ladder import Ladder
from sidedraft.verifier.state.lanes import Lanes
from sidedraft.wire import messages as m
from sidedraft.wire.agreement import Agreement

Outgoing = m.Message | Parcel


class Outbox:
    """Messages about the session itself first, then the lanes, then word of released requests."""

    def __init__(self, ladder: Ladder, counters: Counters, patience: float) -> None:
        self.bulk_up = False
        """There is a bulk connection."""
        self._ladder = ladder
        self._counters = counters
        self._patience = patience
        self._freed: list[Any] = []
        self._abandoned: list[Any] = []
        self._urgent: deque[m.Message] = deque()
        self._lanes = self._new_lanes(0)
        self._beat = 0
        self._proof = 0
        """Serial of the first heartbeat after a refusal: its answer shows that messages pass again."""

    def open(self, agreement: Agreement) -> None:
        """A session begins."""
        self._lanes = self._new_lanes(agreement.limits.bulk_credit)

    def shut(self) -> None:
        """The session is over: nothing of it is sent any more, and what was under way is uncertain."""
        self._urgent.clear()
        self._lanes.clear()
        under_way = self._lanes.under_way()
        self._counters.buffers_abandoned += len(under_way)
        self._abandoned.extend(under_way)
        self._lanes = self._new_lanes(0)

    def say(self, message: m.Message) -> None:
        """Send this before anything else."""
        self._urgent.append(message)

    def hush(self) -> None:
        """Nothing said and not sent is worth sending any more."""
        self._urgent.clear()

    def beat(self, agreement: Agreement) -> None:
        """A sign of life."""
        self._beat += 1
        self.say(m.Heartbeat(session=agreement.session, epoch=agreement.epoch, serial=self._beat))

    def proves_drained(self, pulse: m.Pulse) -> bool:
        """Whether it answers a heartbeat that was sent after the last refusal."""
        return pulse.serial >= self._proof

    def dispatch(self, now: float, parcel: Parcel) -> None:
        """A parcel is complete: queue it, unless it has become worthless meanwhile."""
        agreement = self._ladder.agreement
        if agreement is None or agreement.session != parcel.session:
            self._lanes.free(parcel)  # its requests were lost with their session
        elif self._ladder.blocked:
            self._lanes.free(parcel)
            self._ladder.lose(now, self._ladder.find(parcel.requests()), "an advance could not be sent")
        else:
            self._lanes.push(now, parcel)

    def next(self, now: float) -> Outgoing | None:
        """The next message to be sent, or None. Its fate is told by `sent` or `refused`."""
        if self._urgent:
            return self._urgent.popleft()
        agreement = self._ladder.agreement
        if agreement is None or self._ladder.blocked:
            return None
        item = self._lanes.pop(now, bulk_up=self.bulk_up)
        if item is not None:
            return item
        told = self._ladder.take_released(now, agreement.limits.batch)
        if not told:
            return None
        return m.Release(
            session=agreement.session,
            epoch=agreement.epoch,
            requests=tuple(wire_id for wire_id, _ in told),
            generations=tuple(generation for _, generation in told),
        )

    def sent(self, now: float, item: Outgoing) -> None:
        """The transport took it."""
        if isinstance(item, m.Heartbeat):
            self._counters.heartbeats += 1
        elif isinstance(item, Parcel):
            self._lanes.sent(now, item)

    def refused(self, now: float, item: Outgoing) -> None:
        """The transport did not take it: its queue is full, or it is cut off and will say so.

        On the bulk lane a full queue is no fault; what waits there is sent when there is room again.
        """
        if self._ladder.agreement is None or isinstance(item, m.Goodbye):
            return
        if isinstance(item, Parcel) and item.bulk:
            self._lanes.put_back(now, item)
            return
        if isinstance(item, Parcel | m.Release):
            self._lanes.put_back(now, item)
        self._proof = self._beat + 1
        self._ladder.send_refused(now, self._lanes.clear())

    def drop(self, parcel: Parcel) -> None:
        """It cannot be encoded."""
        self._lanes.free(parcel)

    def credited(self, now: float, count: int) -> None:
        """The server returned bytes of bulk credit."""
        self._lanes.credited(now, count)

    def stalled(self, now: float) -> bool:
        """Whether bulk messages have waited for too long without anything moving."""
        return self._lanes.stalled(now, self._patience)

    def next_event(self, now: float) -> float:
        """When `next` or `stalled` may have something new."""
        return self._lanes.next_event(now, self._patience)

    def take_buffers(self) -> tuple[list[Any], list[Any]]:
        """Staging buffers given back since the last call: those that can be used again, and those that were
        under way when their session ended, which the transport may still read."""
        freed, abandoned = list(self._freed), list(self._abandoned)
        self._freed.clear()
        self._abandoned.clear()
        return freed, abandoned

    def _new_lanes(self, credit: int) -> Lanes:
        return Lanes(credit, self._ladder.by_id, self._counters, self._freed)
