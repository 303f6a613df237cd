"""Whether a hello becomes a session."""

from __future__ import annotations

import dataclasses

import msgspec

from sidedraft.server.phases import Phase
from sidedraft.server.service import Service
from sidedraft.server.sessions import Session
from sidedraft.transport.base import PeerId
from sidedraft.transport.clients import Client
from sidedraft.wire import handshake
from sidedraft.wire import messages as m
from sidedraft.wire.errors import Code

MAX_SESSIONS = 256
"""Sessions at once; each costs little, but not nothing."""

DEFAULT_NAMESPACE = "default"


def greet(
    hello: m.Hello,
    service: Service | None,
    *,
    phase: Phase,
    open_sessions: int,
    owner: int,
    peer: PeerId,
    now: float,
    client: Client | None = None,
) -> Session | m.Refusal:
    """A session, not yet entered anywhere, or why there is none.

    A client's key decides which namespaces it may use, in place of the server's own list. `default` means its
    first one unless it has a right to that name: what it is told apart by stays the same for as long as its
    key does, whatever it says of itself.
    """
    if phase in (Phase.DRAINING, Phase.FAILED):
        return _refused(Code.DRAINING, phase, "the server is going away")
    if service is None or phase is not Phase.READY:
        return _refused(Code.NOT_READY, phase, f"the server is {phase.value}; say hello again")
    if open_sessions >= MAX_SESSIONS:
        return _refused(Code.CAPACITY, phase, f"the server holds {MAX_SESSIONS} sessions already")
    facts = service.facts
    if client is not None:
        facts = dataclasses.replace(facts, namespaces=frozenset(client.namespaces))
        if hello.namespace == DEFAULT_NAMESPACE and DEFAULT_NAMESPACE not in client.namespaces:
            hello = msgspec.structs.replace(hello, namespace=client.namespaces[0])
    agreed = handshake.negotiate(hello, facts, handshake.random_id())
    if isinstance(agreed, m.Refusal):
        return agreed
    return Session(
        owner=owner, agreement=agreed, verifier=hello.verifier, control=peer, heard=now, client=client
    )


def _refused(code: Code, phase: Phase, detail: str) -> m.Refusal:
    return handshake.refusal(code, "phase", phase.value, "", detail)
