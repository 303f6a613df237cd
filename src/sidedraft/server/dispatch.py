"""Finds out whose message it is and what becomes of it. A bad one costs its sender, and nobody else."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import sidedraft
from sidedraft.server.counters import IoCounters
from sidedraft.server.exchange import EngineView, Exchange
from sidedraft.server.greeting import greet
from sidedraft.server.inbox import Order
from sidedraft.server.outbound import Outbound
from sidedraft.server.phases import Lifecycle
from sidedraft.server.reply import Reply
from sidedraft.server.service import Service
from sidedraft.server.sessions import Session, Sessions
from sidedraft.transport.base import Lane, Listener, PeerId, Received
from sidedraft.wire import handshake
from sidedraft.wire import messages as m
from sidedraft.wire.codec import Codec
from sidedraft.wire.errors import Code, WireError, shorten
from sidedraft.wire.headers import End, peek
from sidedraft.wire.limits import MAX_DETAIL

log = logging.getLogger(__name__)

SOFTWARE = f"sidedraft {sidedraft.__version__}"


class Dispatcher:
    """Owned by the I/O thread; never waits, and raises nothing for what a peer does."""

    def __init__(
        self,
        listener: Listener,
        lifecycle: Lifecycle,
        epoch: int,
        counters: IoCounters,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.sessions = Sessions()
        self._listener = listener
        self._lifecycle = lifecycle
        self._counters = counters
        self._clock = clock
        self._outbound = Outbound(listener, epoch, counters)
        self._strangers = Codec(End.SERVER)
        self._owners = 0
        self._service: Service | None = None
        self._exchange: Exchange | None = None

    def open(self, service: Service, engine: EngineView) -> None:
        """The model is loaded: sessions are possible from now on."""
        self._service = service
        self._exchange = Exchange(
            self.sessions,
            service.reception,
            self._outbound,
            self._lifecycle,
            engine,
            self._counters,
            self._clock,
        )

    def received(self, event: Received) -> None:
        """Take in one message, whatever it is."""
        self._counters.messages.add()
        self._counters.bytes_received.add(sum(frame.nbytes for frame in event.frames))
        session = self.sessions.of_peer(event.lane, event.peer) or self._join_bulk(event)
        try:
            if session is None or self._exchange is None:
                self._stranger(event)
            else:
                session.heard = self._clock()
                self._member(self._exchange, session, event)
        except Exception:
            # A fault of ours must not end other peers' sessions.
            log.exception("a message could not be handled; its connection is dropped")
            self._counters.messages_refused.add()
            if session is not None:
                self._end(session, Code.INTERNAL, "the server failed to handle a message")
            self._listener.drop(event.peer, event.lane)

    def disconnected(self, lane: Lane, peer: PeerId) -> None:
        """The connection is gone; with the control connection the session is over."""
        session = self.sessions.of_peer(lane, peer)
        if lane is Lane.BULK:
            self.sessions.leave_bulk(peer)
        elif session is not None and self._exchange is not None:
            self._exchange.forget(session)

    def answer(self, reply: Reply) -> None:
        """Send what an engine step gave."""
        if self._exchange is not None:
            self._exchange.answer(reply)

    def flush(self) -> list[Order]:
        """After events and replies: end what ran out, send credits; returns what the engine has to do."""
        if self._exchange is None:
            return []
        for session in self.sessions.expired(self._clock()):
            self._counters.sessions_expired.add()
            self._end(session, Code.UNKNOWN_SESSION, "the lease ran out")
        for session, code, reason in self._outbound.take_stuck():
            # Its connection goes as well, so that nothing waits for it.
            self._end(session, code, reason)
            self._listener.drop(session.control, Lane.CONTROL)
        return self._exchange.flush()

    def farewell(self, reason: str) -> None:
        """Tell every verifier that the server goes away."""
        for session in self.sessions:
            self._outbound.send(session, m.Goodbye(**session.ids, reason=shorten(reason, MAX_DETAIL)))

    def _member(self, exchange: Exchange, session: Session, event: Received) -> None:
        size = event.frames[1].nbytes if len(event.frames) > 1 else 0
        try:
            message = session.codec.decode(event.frames, bulk=event.lane is Lane.BULK)
        except WireError as error:
            exchange.unusable(session, error, event.lane, size)
            return
        if isinstance(message, m.Hello):
            exchange.forget(session)
            self._hello(event.peer, message)
        elif isinstance(message, m.Goodbye):
            exchange.forget(session)
        else:
            try:
                exchange.take(session, message, event.lane, size)
            except WireError as error:
                self._counters.messages_refused.add()
                self._end(session, error.code, error.detail)

    def _join_bulk(self, event: Received) -> Session | None:
        """A bulk connection names its session, a secret between the session's ends, and has its key."""
        seen = peek(event.frames) if event.lane is Lane.BULK else None
        session = None if seen is None else self.sessions.of_id(seen.session)
        if session is None or session.client != self._listener.client(event.peer, Lane.BULK):
            return None
        self.sessions.join_bulk(session, event.peer)
        return session

    def _stranger(self, event: Received) -> None:
        """A peer without a session may say hello, and nothing else."""
        if event.lane is Lane.BULK:
            # Left over from a session that is gone; its control connection hears of that.
            self._counters.stale.add()
            return
        seen = peek(event.frames)
        if seen is not None and seen.type != "hello":
            self._counters.stale.add()
            self._outbound.fail(event.peer, 0, Code.UNKNOWN_SESSION, "no such session; say hello", fatal=True)
            return
        try:
            message = self._strangers.decode(event.frames)
        except WireError as error:
            self._counters.messages_refused.add()
            self._outbound.fail(event.peer, 0, error.code, error.detail, fatal=True)
            return
        if isinstance(message, m.Hello):
            self._hello(event.peer, message)

    def _hello(self, peer: PeerId, hello: m.Hello) -> None:
        self._owners += 1
        made = greet(
            hello,
            self._service,
            phase=self._lifecycle.phase,
            open_sessions=len(self.sessions),
            owner=self._owners,
            peer=peer,
            now=self._clock(),
            client=self._listener.client(peer, Lane.CONTROL),
        )
        if isinstance(made, m.Refusal):
            self._outbound.refuse(peer, made)
            return
        self.sessions.add(made)
        self._counters.sessions_opened.add()
        self._outbound.send(made, handshake.welcome(made.agreement, SOFTWARE))

    def _end(self, session: Session, code: Code, detail: str) -> None:
        """End a session from this side, and say why."""
        if self._exchange is not None:
            self._exchange.forget(session)
        self._outbound.fail(session.control, session.agreement.session, code, detail, fatal=True)
