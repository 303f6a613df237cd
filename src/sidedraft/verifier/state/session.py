"""The whole verifier without I/O: handshake, heartbeats and what is to be sent, around the ladder.

Whoever owns it passes in what happened (submits, messages, connections) with the time, sends what `outbox`
wants sent, and calls `tick` at `next_event`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from random import Random

from sidedraft.settings import VerifierSettings
from sidedraft.verifier.state.answers import take_answers
from sidedraft.verifier.state.backoff import Backoff
from sidedraft.verifier.state.counters import Counters
from sidedraft.verifier.state.cutting import Parcel
from sidedraft.verifier.state.entry import Entry
from sidedraft.verifier.state.figures import Figures
from sidedraft.verifier.state.greeter import Greeter
from sidedraft.verifier.state.ladder import Ladder
from sidedraft.verifier.state.link import Link, LinkState
from sidedraft.verifier.state.news import News, Rung
from sidedraft.verifier.state.outbox import Outbox, Outgoing
from sidedraft.verifier.state.planning import Planner
from sidedraft.verifier.state.step import Step
from sidedraft.wire import messages as m
from sidedraft.wire.agreement import Agreement
from sidedraft.wire.batch import AnswerBatch
from sidedraft.wire.errors import Code, WireError

SESSION_OVER = frozenset({Code.UNKNOWN_SESSION, Code.STALE_SESSION})
"""Failures after which the session is of no use, whether or not they are called fatal."""


class Session:
    """Not thread-safe; `now` never goes back."""

    def __init__(self, hello: m.Hello, settings: VerifierSettings, random: Random) -> None:
        self.counters = Counters()
        self.figures = Figures(self.counters)
        self.news = News()
        self.ladder = Ladder(settings, random, self.counters, self.news)
        self.link = Link(settings, Backoff(settings.retry_first, settings.retry_cap, random))
        self.outbox = Outbox(self.ladder, self.counters, settings.lost_after)
        self.pulse: m.Pulse | None = None
        """The server's latest word on itself; its `progress` tells a hung engine from an idle one."""
        self.refusal = ""
        """Why there is no session, in the server's words; empty when it did not refuse one."""
        self._greeter = Greeter(hello, settings.limits)
        self._settings = settings
        self._planner = Planner(self.ladder, self.figures)

    @property
    def agreement(self) -> Agreement | None:
        return self.ladder.agreement

    # From the engine.

    def submit(self, now: float, entries: Sequence[Entry], begun: float) -> tuple[Step, list[Parcel]]:
        """Plan a step whose deadline counts from `begun`; each parcel is to be filled and passed to
        `outbox.dispatch`, in order."""
        return self._planner.plan(now, entries, begun)

    def release(self, now: float, keys: Iterable[Hashable]) -> None:
        """These requests ended."""
        self.ladder.release(now, keys)

    def close(self, now: float) -> None:
        """Say goodbye; nobody waits any more."""
        self.ladder.end(now)
        self.abandon(now, "closed")

    # From the transport.

    def connected(self, now: float, *, bulk: bool) -> None:
        """A lane is up; nothing sent before it will arrive."""
        if bulk:
            self.outbox.bulk_up = True
            return
        self._end_session(now, "the connection was replaced")
        self.outbox.hush()
        self.link.connected()

    def disconnected(self, now: float, *, bulk: bool, reason: str) -> None:
        """A lane is gone; what was under way on it is uncertain."""
        if bulk:
            self.outbox.bulk_up = False
            if self.agreement is not None:
                self.abandon(now, f"bulk connection lost: {reason or 'no reason given'}")
        else:
            self._end_session(now, f"disconnected: {reason or 'no reason given'}")
            self.link.disconnected(now)

    def receive(self, now: float, message: m.Message | AnswerBatch) -> None:
        """A decoded message."""
        agreement = self.agreement
        if isinstance(message, m.Welcome):
            self._welcome(now, message)
        elif isinstance(message, m.Refusal):
            self._turned_away(now, message)
        elif isinstance(message, m.Failure) and message.session == 0:
            self._stranger(now, message)
        elif agreement is None or not _belongs(message, agreement):
            self.counters.stale_messages += 1
        else:
            self.link.heard(now)
            self._receive(now, message, agreement)

    def undecodable(self, error: WireError) -> None:
        """A message that is none, or is of a session there is no more."""
        if error.code in SESSION_OVER:
            self.counters.stale_messages += 1
            return
        self.counters.bad_messages += 1
        self.news.add(Rung.BAD_MESSAGE, f"a message was dropped: {error}")

    def unsendable(self, now: float, parcel: Parcel, error: WireError) -> None:
        """The encoder refused it: a rule of the wire that our own checks do not know."""
        self.outbox.drop(parcel)
        self.counters.refused += 1
        self.news.add(Rung.REFUSED, f"an advance cannot be sent: {error}")
        self.ladder.lose(now, self.ladder.find(parcel.requests()), str(error))

    def abandon(self, now: float, why: str) -> None:
        """End the session from our side; another begins after a wait."""
        agreement = self.agreement
        if agreement is not None:
            self._end_session(now, why)
            self.outbox.say(m.Goodbye(session=agreement.session, epoch=agreement.epoch, reason=""))
        self.link.failed(now)

    def crashed(self, now: float, why: str) -> None:
        """The transport, or our own I/O, failed in an unexpected way; another channel will be opened."""
        self.counters.crashes += 1
        self.news.add(Rung.CRASH, f"I/O failed and begins anew: {why}")
        self.disconnected(now, bulk=True, reason=why)
        self.disconnected(now, bulk=False, reason=why)
        self.outbox.hush()

    # To the transport.

    def refused(self, now: float, item: Outgoing) -> None:
        """The transport did not take it."""
        if isinstance(item, m.Hello):
            self._handshake_failed(now, "the transport does not take our hello")
        else:
            self.outbox.refused(now, item)

    # Time.

    def tick(self, now: float) -> None:
        """Everything that is due."""
        if self.link.silent(now):
            if self.link.up:
                self.abandon(now, "no sign of life from the server")
            else:
                self._handshake_failed(now, "no reply to our hello")
        waiting = self.agreement is not None and not self.ladder.blocked
        if waiting and self.outbox.stalled(now):
            self.abandon(now, "rows wait for credit that does not come back")
        if self.link.hello_due(now):
            self.link.greeted(now)
            self.outbox.say(self._greeter.hello)
        agreement = self.agreement
        if agreement is not None and self.link.beat_due(now):
            self.link.beaten(now)
            self.outbox.beat(agreement)
            report = self.figures.report(now, self.ladder, agreement)
            if report is not None:
                self.outbox.say(report)
        self.ladder.tick(now)

    def next_event(self, now: float) -> float:
        """When `tick` or `next` has something to do."""
        return min(self.link.next_event(), self.ladder.next_event(), self.outbox.next_event(now))

    # Within.

    def _receive(self, now: float, message: m.Message | AnswerBatch, agreement: Agreement) -> None:
        match message:
            case AnswerBatch():
                self.link.alive()
                take_answers(self.ladder, now, message, agreement.vocab_size)
            case m.Pulse():
                self.pulse = message
                if self.ladder.blocked and self.outbox.proves_drained(message):
                    self.ladder.drained(now)
            case m.Credit():
                self.ladder.heard_at = now
                self.outbox.credited(now, message.bytes)
            case m.Failure():
                self.counters.failures += 1
                self.news.add(Rung.SESSION, f"the server reports {message.code}: {message.detail}")
                if message.fatal or message.code in SESSION_OVER:
                    self._end_session(now, f"the server ended it: {message.code}")
                    self.link.failed(now)
            case m.Goodbye():
                self._end_session(now, f"the server said goodbye: {message.reason or 'no reason given'}")
                self.link.failed(now)

    def _welcome(self, now: float, welcome: m.Welcome) -> None:
        try:
            agreement = None if self.link.state is LinkState.DOWN else self._greeter.read(welcome)
        except WireError as error:
            self._handshake_failed(now, f"the server's welcome is not acceptable: {error}")
            return
        if agreement is None:
            self.counters.stale_messages += 1
            return
        # An answer to an earlier hello, given up too soon: the server goes by the latest session.
        self._end_session(now, "the server began another")
        if self._greeter.is_new_server(agreement):
            self.counters.epoch_changes += 1
            self.ladder.patience.forget()
        self.outbox.open(agreement)
        self.refusal = ""
        self.counters.sessions += 1
        self.link.welcomed(now, agreement.heartbeat_ms / 1e3, agreement.lease_ms / 1e3)
        self.ladder.session_opened(now, agreement)
        self.news.add(
            Rung.SESSION,
            f"session with {welcome.software}: rows {agreement.row_format.kind}, "
            f"depth {agreement.max_depth}, identity {agreement.identity}",
        )

    def _turned_away(self, now: float, refusal: m.Refusal) -> None:
        if self.link.state is not LinkState.GREETING:
            self.counters.stale_messages += 1
            return
        self.refusal = f"{refusal.code}: {refusal.detail}"
        self._handshake_failed(now, f"refused by the server, serving without drafts: {self.refusal}")

    def _stranger(self, now: float, failure: m.Failure) -> None:
        """The server knows no session of this connection. What it says to a hello is the answer to it;
        otherwise it is about something said before the hello."""
        self.counters.failures += 1
        if self.agreement is not None:
            self._end_session(now, f"the server does not know it: {failure.code}")
            self.link.failed(now)
        elif self.link.state is LinkState.GREETING and failure.code != Code.UNKNOWN_SESSION:
            self._handshake_failed(now, f"{failure.code}: {failure.detail}")

    def _handshake_failed(self, now: float, why: str) -> None:
        self.counters.handshake_failures += 1
        self.news.add(Rung.HANDSHAKE, f"no session: {why}")
        self._end_session(now, why)
        self.link.failed(now)

    def _end_session(self, now: float, why: str) -> None:
        """Forget it; what was under way is uncertain."""
        agreement = self.agreement
        if agreement is None:
            return
        self.counters.session_losses += 1
        self.news.add(Rung.SESSION, f"session over: {why}")
        self.outbox.shut()
        self.pulse = None
        self.ladder.session_lost(now, why)


def _belongs(message: m.Message | AnswerBatch, agreement: Agreement) -> bool:
    session, epoch = getattr(message, "session", None), getattr(message, "epoch", None)
    return (session, epoch) == (agreement.session, agreement.epoch)
