"""Sends messages to verifiers, without ever waiting for one."""

from __future__ import annotations

from sidedraft.server.counters import IoCounters
from sidedraft.server.sessions import Session
from sidedraft.transport.base import Lane, Listener, PeerId
from sidedraft.wire import messages as m
from sidedraft.wire.codec import Codec, Decoded
from sidedraft.wire.errors import Code, shorten
from sidedraft.wire.headers import End
from sidedraft.wire.limits import MAX_DETAIL


class Outbound:
    """Owned by the I/O thread."""

    def __init__(self, listener: Listener, epoch: int, counters: IoCounters) -> None:
        self._listener = listener
        self._epoch = epoch
        self._counters = counters
        self._codec = Codec(End.SERVER)
        self._stuck: list[Session] = []

    def send(self, session: Session, message: Decoded) -> bool:
        """To a session, on its control connection. False: it is gone or does not read."""
        taken = self._taken(self._listener.send(session.control, Lane.CONTROL, session.codec.encode(message)))
        if not taken and session not in self._stuck:
            self._stuck.append(session)
        return taken

    def take_stuck(self) -> list[Session]:
        """Sessions to which something could not be sent since the last call."""
        stuck, self._stuck = self._stuck, []
        return stuck

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
