"""What goes back and forth inside a session."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from sidedraft.server.answers import group, timings
from sidedraft.server.counters import IoCounters
from sidedraft.server.inbox import Order
from sidedraft.server.outbound import Outbound
from sidedraft.server.phases import Lifecycle
from sidedraft.server.reply import Reply
from sidedraft.server.sessions import Session, Sessions
from sidedraft.transport.base import Lane
from sidedraft.wire import messages as m
from sidedraft.wire.advance import Answer, Outcome
from sidedraft.wire.batch import AdvanceBatch, AnswerBatch, Timings
from sidedraft.wire.codec import Decoded
from sidedraft.wire.errors import Code, WireError
from sidedraft.wire.versions import as_agreed

if TYPE_CHECKING:
    from sidedraft.server.reception import Reception


class EngineView(Protocol):
    """What a pulse tells of the engine."""

    def progress(self) -> int:
        """Steps completed."""

    def queued(self) -> int:
        """Advances that wait."""


class Exchange:
    """Advances in, answers and credits out. Owned by the I/O thread; never waits."""

    def __init__(
        self,
        sessions: Sessions,
        reception: Reception,
        outbound: Outbound,
        lifecycle: Lifecycle,
        engine: EngineView,
        counters: IoCounters,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sessions = sessions
        self._reception = reception
        self._outbound = outbound
        self._lifecycle = lifecycle
        self._engine = engine
        self._counters = counters
        self._clock = clock

    def take(self, session: Session, message: Decoded, lane: Lane, size: int) -> None:
        """One message of a session's verifier, decoded by its codec; `size` is its payload's, in bytes.

        Raises `WireError`: the session broke a rule and cannot go on.
        """
        match message:
            case AdvanceBatch():
                self._advances(session, message, lane, size)
            case m.Heartbeat():
                self._pulse(session, message)
            case m.Report():
                session.report = message
            case m.Release():
                self._reception.release(session, message)
            case _:
                raise WireError(Code.UNEXPECTED, "type", type(message).__name__, "a message of a session")

    def unusable(self, session: Session, error: WireError, lane: Lane, size: int) -> None:
        """A message that could not be decoded: say so, and give its bytes back; a stale one took none."""
        if error.code is Code.STALE_SESSION:
            self._counters.stale.add()
            return
        self._counters.messages_refused.add()
        self._outbound.fail(session.control, session.agreement.session, error.code, error.detail, fatal=False)
        self._reception.give_back(session, lane, size)

    def answer(self, reply: Reply) -> None:
        """Send what an engine step gave."""
        for job in reply.jobs:
            self._reception.settle(self._sessions.of_owner(job.owner), job)
        if not reply.answers:
            return
        spent = timings(reply, self._clock())
        if reply.proposals:
            self._counters.spent(spent)
        for owner, (serial, answers) in group(reply).items():
            session = self._sessions.of_owner(owner)
            if session is None:
                self._counters.stale.add()
            else:
                for answer in answers:
                    session.answered(answer)
                    if answer.outcome is Outcome.REFUSED:
                        self._reception.refused(session, answer)
                self._send_answers(session, serial, answers, spent)

    def flush(self) -> list[Order]:
        """Give back the credits that are due; returns what the engine has to do."""
        for owner, count in self._reception.take_credits().items():
            session = self._sessions.of_owner(owner)
            if session is not None:
                self._outbound.send(session, m.Credit(**session.ids, bytes=count))
        return self._reception.take_orders()

    def forget(self, session: Session) -> None:
        """The session is over; the engine lets go of its requests."""
        self._sessions.remove(session)
        self._reception.release_owner(session)

    def _advances(self, session: Session, batch: AdvanceBatch, lane: Lane, size: int) -> None:
        credit = session.agreement.limits.bulk_credit
        if lane is Lane.BULK and session.held[lane] + size > credit:
            expected = f"at most {credit} unacknowledged"
            raise WireError(Code.TOO_LARGE, "bulk bytes", session.held[lane] + size, expected)
        self._counters.advances.add(len(batch.advances) + len(batch.refused))
        answers = self._reception.admit(session, batch, lane, size, self._clock())
        self._counters.advances_refused.add(len(answers))
        if answers:
            self._send_answers(session, batch.serial, answers, Timings())

    def _send_answers(self, session: Session, serial: int, answers: list[Answer], spent: Timings) -> None:
        agreement = session.agreement
        most, spent = agreement.limits.batch, as_agreed(spent, agreement.minor, agreement.features)
        for start in range(0, len(answers), most):
            part = AnswerBatch(
                **session.ids, serial=serial, answers=answers[start : start + most], timings=spent
            )
            self._outbound.send(session, part)

    def _pulse(self, session: Session, heartbeat: m.Heartbeat) -> None:
        self._outbound.send(
            session,
            m.Pulse(
                **session.ids,
                serial=heartbeat.serial,
                progress=self._engine.progress(),
                queued=self._engine.queued(),
                phase=self._lifecycle.phase.value,
            ),
        )
