"""Sends messages to verifiers, without ever waiting for one."""

from __future__ import annotations

import logging

from sidedraft.server.counters import IoCounters
from sidedraft.server.sessions import Session
from sidedraft.transport.base import Lane, Listener, PeerId
from sidedraft.wire import messages as m
from sidedraft.wire.codec import Codec, Decoded
from sidedraft.wire.errors import Code, WireError, shorten
from sidedraft.wire.headers import End
from sidedraft.wire.limits import MAX_DETAIL

log = logging.getLogger(__name__)


class Outbound:
    """Owned by the I/O thread."""

    def __init__(self, listener: Listener, epoch: int, counters: IoCounters) -> None:
        self._listener = listener
        self._epoch = epoch
        self._counters = counters
        self._codec = Codec(End.SERVER)
        self._stuck: dict[Session, tuple[Code, str]] = {}

    def send(self, session: Session, message: Decoded) -> bool:
        """To a session, on its control connection. False: the session cannot go on, see `take_stuck`."""
        try:
            frames = session.codec.encode(message)
        except WireError as error:
            # A fault of ours; the other sessions' messages must still go out.
            log.error("a message to %s breaks a rule: %s", session.verifier, error)
            self._stuck[session] = (Code.INTERNAL, "the server failed to write a message")
            return False
        taken = self._taken(self._listener.send(session.control, Lane.CONTROL, frames))
        if not taken:
            self._stuck.setdefault(session, (Code.CAPACITY, "messages are not read"))
        return taken

    def take_stuck(self) -> list[tuple[Session, Code, str]]:
        """Sessions to which something could not be sent since the last call, and why."""
        stuck, self._stuck = self._stuck, {}
        return [(session, *reason) for session, reason in stuck.items()]

    def refuse(self, peer: PeerId, refusal: m.Refusal) -> None:
        """No session for this peer."""
        self._counters.sessions_refused.add()
        self._taken(self._listener.send(peer, Lane.CONTROL, self._codec.encode(refusal)))

    def fail(self, peer: PeerId, session: int, code: Code, detail: str, *, fatal: bool) -> None:
        """A message of this peer could not be used; `session` is 0 when it has none."""
        failure = m.Failure(
            session=session,
            epoch=self._epoch,
            code=code.value,
            detail=shorten(detail, MAX_DETAIL),
            fatal=fatal,
        )
        self._taken(self._listener.send(peer, Lane.CONTROL, self._codec.encode(failure)))

    def _taken(self, taken: bool) -> bool:
        if not taken:
            self._counters.sends_refused.add()
        return taken
