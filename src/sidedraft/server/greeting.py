"""Whether a hello becomes a session."""

from __future__ import annotations

from sidedraft.server.phases import Phase
from sidedraft.server.service import Service
from sidedraft.server.sessions import Session
from sidedraft.transport.base import PeerId
from sidedraft.wire import handshake
from sidedraft.wire import messages as m
from sidedraft.wire.errors import Code

MAX_SESSIONS = 256
"""Sessions at once; each costs little, but not nothing."""


def greet(
    hello: m.Hello,
    service: Service | None,
    *,
    phase: Phase,
    open_sessions: int,
    owner: int,
    peer: PeerId,
    now: float,
) -> Session | m.Refusal:
    """A session, not yet entered anywhere, or why there is none."""
    if phase in (Phase.DRAINING, Phase.FAILED):
        return _refused(Code.DRAINING, phase, "the server is going away")
    if service is None or phase is not Phase.READY:
        return _refused(Code.NOT_READY, phase, f"the server is {phase.value}; say hello again")
    if open_sessions >= MAX_SESSIONS:
        return _refused(Code.CAPACITY, phase, f"the server holds {MAX_SESSIONS} sessions already")
    agreed = handshake.negotiate(hello, service.facts, handshake.random_id())
    if isinstance(agreed, m.Refusal):
        return agreed
    return Session(owner=owner, agreement=agreed, verifier=hello.verifier, control=peer, heard=now)


def _refused(code: Code, phase: Phase, detail: str) -> m.Refusal:
    return handshake.refusal(code, "phase", phase.value, "", detail)
