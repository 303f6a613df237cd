"""Puts a session's advances on their way to the engine, and settles what they cost."""

from __future__ import annotations

from sidedraft.engine import Sequencer, Work
from sidedraft.server.inbox import Order, ReleaseOwner, ReleaseRequest
from sidedraft.server.job import Job, Receipt
from sidedraft.server.quotas import Quotas
from sidedraft.server.sessions import Session
from sidedraft.transport.base import Lane
from sidedraft.wire.advance import Advance, Answer
from sidedraft.wire.batch import AdvanceBatch, refusal
from sidedraft.wire.limits import MAX_ID
from sidedraft.wire.messages import Release


class Reception:
    """Between messages and the engine's inbox. Owned by the I/O thread."""

    def __init__(self, sequencer: Sequencer, quotas: Quotas = Quotas()) -> None:  # noqa: B008 - frozen
        self._sequencer = sequencer
        self._quotas = quotas
        self._orders: list[Order] = []
        self._credits: dict[int, int] = {}

    def take_orders(self) -> list[Order]:
        """What the engine has to do since the last call."""
        orders, self._orders = self._orders, []
        return orders

    def take_credits(self) -> dict[int, int]:
        """Bulk bytes to give back, by owner, since the last call."""
        due, self._credits = self._credits, {}
        return due

    def admit(self, session: Session, batch: AdvanceBatch, lane: Lane, size: int, now: float) -> list[Answer]:
        """Queue the advances of a batch; returns the answers to those refused right here.

        `size` is the payload's, in bytes.
        """
        refused = list(batch.refused)
        accepted: list[Advance] = []
        for advance in batch.advances:
            error = self._quotas.exceeded(session, advance, lane, size, len(accepted))
            if error is None:
                session.take(advance)
                accepted.append(advance)
            else:
                refused.append(error)
        receipt = Receipt(session.owner, lane, size, len(accepted))
        session.held[lane] += size
        if not accepted:
            self.free(session, receipt)
        expires = now + batch.budget_us / 1e6 if batch.budget_us else None
        for advance in accepted:
            self._push(session, _job(session, advance, batch.serial, receipt, now, expires))
        answers: list[Answer] = []
        for error in refused:
            answer = refusal(error)
            if answer is not None:
                answers.append(answer)
                self._end(session, answer, answer.number)
        return answers

    def refused(self, session: Session, answer: Answer) -> None:
        """The engine refused an advance: what is held of its generation will be refused as well."""
        self._end(session, answer, MAX_ID)

    def release(self, session: Session, message: Release) -> None:
        """Let go of requests; what still waits for a number that never came is given up."""
        for request, generation in zip(message.requests, message.generations, strict=True):
            for work in self._sequencer.release(session.owner, request, generation):
                self.settle(session, _as_job(work))
            session.close_request(request, generation)
            self._orders.append(ReleaseRequest(session.owner, request, generation))

    def release_owner(self, session: Session) -> None:
        """The session is over."""
        self._sequencer.release_owner(session.owner)
        self._orders.append(ReleaseOwner(session.owner))

    def settle(self, session: Session | None, job: Job) -> None:
        """A job is done with, answered or not: its share of the payload is free."""
        if session is not None:
            session.unanswered -= 1
        job.receipt.left -= 1
        if job.receipt.left == 0:
            self.free(session, job.receipt)

    def give_back(self, session: Session, lane: Lane, size: int) -> None:
        """A payload that was received and not used."""
        session.held[lane] += size
        self.free(session, Receipt(session.owner, lane, size, 0))

    def free(self, session: Session | None, receipt: Receipt) -> None:
        """Nobody reads from a payload any more."""
        if session is not None:
            session.held[receipt.lane] -= receipt.size
        if receipt.lane is Lane.BULK:
            self._credits[receipt.owner] = self._credits.get(receipt.owner, 0) + receipt.size

    def _push(self, session: Session, job: Job) -> None:
        session.unanswered += 1
        duplicates = self._sequencer.duplicates
        self._forward(self._sequencer.push(job))
        if self._sequencer.duplicates > duplicates:
            self.settle(session, job)

    def _end(self, session: Session, answer: Answer, number: int) -> None:
        session.close_request(answer.request, answer.generation)
        self._forward(self._sequencer.skip(session.owner, answer.request, answer.generation, number))

    def _forward(self, works: list[Work]) -> None:
        self._orders.extend(map(_as_job, works))


def _job(
    session: Session,
    advance: Advance,
    serial: int,
    receipt: Receipt,
    now: float,
    expires: float | None,
) -> Job:
    agreement = session.agreement
    return Job(
        owner=session.owner,
        namespace=agreement.namespace,
        target_key=agreement.target_key,
        row_format=agreement.row_format.name,
        advance=advance,
        arrived=now,
        expires=expires,
        serial=serial,
        receipt=receipt,
    )


def _as_job(work: Work) -> Job:
    """The sequencer hands back what it was given, and only jobs are given to it."""
    if not isinstance(work, Job):
        raise TypeError(f"expected a Job, got {type(work).__name__}")
    return work
