"""The I/O side: what arrives goes into the session, what the session wants sent goes out."""

from __future__ import annotations

from sidedraft.transport.base import Channel, Connected, Disconnected, Event, Frame, Lane, Received
from sidedraft.verifier.reporting import Reporter
from sidedraft.verifier.shared import Shared
from sidedraft.verifier.state.cutting import Parcel
from sidedraft.verifier.state.outbox import Outgoing
from sidedraft.wire.batch import AdvanceBatch, AnswerBatch
from sidedraft.wire.codec import Codec
from sidedraft.wire.errors import Code, WireError
from sidedraft.wire.headers import End
from sidedraft.wire.limits import MAX_MICROSECONDS
from sidedraft.wire.messages import Message

LONGEST_POLL = 0.25
"""Seconds after which it looks around even if nothing is due."""

SHORTEST_POLL = 0.001


class Pump:
    """Owns a channel; used by one thread. Nothing that a peer sends raises."""

    def __init__(self, shared: Shared, channel: Channel, reporter: Reporter) -> None:
        self._shared = shared
        self._channel = channel
        self._reporter = reporter
        self._codec = Codec(End.VERIFIER)
        self._serial = 0

    def timeout(self) -> float:
        """Seconds until something is due."""
        shared = self._shared
        now = shared.clock()
        with shared.changed:
            due = shared.session.next_event(now)
        return min(LONGEST_POLL, max(SHORTEST_POLL, due - now))

    def turn(self, timeout: float) -> None:
        """Wait up to `timeout` seconds for events; handle them, then what is due, then send.

        Raises:
            TransportError: the channel is of no use any more.
        """
        shared = self._shared
        for event in self._channel.poll(timeout):
            self._handle(event)
        with shared.changed:
            shared.session.tick(shared.clock())
            shared.changed.notify_all()
        self.flush()
        with shared.changed:
            news = shared.session.news.take()
            shared.changed.notify_all()
        self._reporter.report(shared.clock(), news)

    def flush(self) -> None:
        """Send everything that may be sent now."""
        shared = self._shared
        while True:
            now = shared.clock()
            with shared.changed:
                item = shared.session.outbox.next(now)
            if item is None:
                return
            self._send(now, item)

    def _handle(self, event: Event) -> None:
        shared = self._shared
        message: Message | AdvanceBatch | AnswerBatch | WireError | None = None
        if isinstance(event, Received):
            try:
                message = self._codec.decode(event.frames, bulk=event.lane is Lane.BULK)
            except WireError as error:
                message = error
        session = shared.session
        with shared.changed:
            now = shared.clock()
            match event, message:
                case Connected(lane), _:
                    session.connected(now, bulk=lane is Lane.BULK)
                case Disconnected(lane), _:
                    session.disconnected(now, bulk=lane is Lane.BULK, reason=event.reason)
                case _, WireError():
                    session.undecodable(message)
                case _, Message() | AnswerBatch():
                    session.receive(now, message)
            agreement = session.agreement
        if self._codec.agreement is not agreement:
            self._codec = Codec(End.VERIFIER, agreement)

    def _send(self, now: float, item: Outgoing) -> None:
        shared = self._shared
        bulk = isinstance(item, Parcel) and item.bulk
        try:
            frames = self._encode(now, item, bulk)
        except WireError as error:
            if not isinstance(item, Parcel):
                raise
            with shared.changed:
                shared.session.unsendable(shared.clock(), item, error)
            return
        taken = self._channel.send(Lane.BULK if bulk else Lane.CONTROL, frames, copy=not bulk)
        with shared.changed:
            now = shared.clock()
            if taken:
                shared.session.outbox.sent(now, item)
            else:
                shared.session.refused(now, item)

    def _encode(self, now: float, item: Outgoing, bulk: bool) -> list[Frame]:
        agreement = self._codec.agreement
        if not isinstance(item, Parcel):
            return self._codec.encode(item)
        if agreement is None:
            raise WireError(Code.STALE_SESSION, "session", item.session, "a session")
        self._serial += 1
        budget = 0 if item.deadline is None else int((item.deadline - now) * 1e6)
        batch = AdvanceBatch(
            agreement.session,
            agreement.epoch,
            self._serial,
            0 if item.deadline is None else min(MAX_MICROSECONDS, max(1, budget)),
            [piece.advance for piece in item.pieces],
        )
        frames = self._codec.encode(batch, bulk=bulk, payload=item.payload)
        if item.step is not None:
            times = item.step.times
            times.serialize += self._shared.clock() - now
            item.step.sent_at = now if item.step.sent_at is None else item.step.sent_at
        return frames
