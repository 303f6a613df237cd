"""With keys, a client's line in the list says which namespaces it may use, and which one is its own."""

from __future__ import annotations

import pytest

from sidedraft.server.status import describe
from sidedraft.transport.base import Lane
from sidedraft.transport.clients import Client
from sidedraft.wire import messages as m
from sidedraft.wire.advance import Outcome
from sidedraft.wire.errors import Code
from support.engine_client import text
from support.server_bench import ServerBench
from support.wire_peer import WirePeer, make_advance


@pytest.fixture
def bench() -> ServerBench:
    bench = ServerBench()
    bench.open()
    return bench


def known(bench: ServerBench, client: Client | None) -> WirePeer:
    """A peer that proved to be this client."""
    peer = bench.peer(greet=False)
    assert peer.quiet()
    if client is not None:
        for lane in Lane:
            connection = peer.channel.connections[lane]  # type: ignore[attr-defined]
            bench.listener.clients[connection.peer, lane] = client
    return peer


A = Client("engine-a", "A", ("team-a", "shared"))
B = Client("engine-b", "B", ("default",))


@pytest.mark.parametrize(
    ("client", "asked", "given"),
    [
        (A, "default", "team-a"),
        (A, "team-a", "team-a"),
        (A, "shared", "shared"),
        (B, "default", "default"),
        (None, "default", "default"),
    ],
)
def test_the_namespace_of_a_session(
    bench: ServerBench, client: Client | None, asked: str, given: str
) -> None:
    peer = known(bench, client)
    peer.greet(bench.hello(namespace=asked))
    (session,) = bench.dispatcher.sessions
    assert session.agreement.namespace == given
    assert describe(session, 0.0)["client"] == (None if client is None else client.name)


@pytest.mark.parametrize(
    ("client", "asked"), [(A, "default-a"), (A, "engine-a"), (B, "team-a"), (None, "shared")]
)
def test_a_namespace_without_a_right_to_it_is_refused(
    bench: ServerBench, client: Client | None, asked: str
) -> None:
    peer = known(bench, client)
    peer.say(bench.hello(namespace=asked))
    refusal = peer.expect(m.Refusal)
    assert (refusal.code, refusal.theirs) == (Code.NAMESPACE, asked)
    assert refusal.ours == ", ".join(sorted(("default",) if client is None else client.namespaces))


def test_context_is_not_found_across_keys(bench: ServerBench) -> None:
    prompt = text(40)
    rows = []
    for client in (A, A, Client("engine-c", "C", ("team-c",))):
        peer = known(bench, client)
        peer.greet(bench.hello())
        sends = not rows
        peer.advance(make_advance(1, 0, 0, prompt, width=4, depth=1, rows=sends))
        rows.append(peer.answers(1)[0].rows_present)
    assert rows == [40, 32, 0], "whole blocks of 16, inside the key's own namespace only"


def test_a_bulk_connection_of_another_key_does_not_join(bench: ServerBench) -> None:
    peer, thief = known(bench, A), known(bench, B)
    peer.greet(bench.hello())
    thief.codec, thief.agreement = peer.codec, peer.agreement  # it learned the session's secret
    thief.advance(make_advance(1, 0, 0, text(5), width=4), lane=Lane.BULK)
    bench.turn()
    assert bench.engine.stats().requests == 0
    assert bench.counters.stale.value == 1
    peer.advance(make_advance(1, 0, 0, text(5), width=4, depth=1), lane=Lane.BULK)
    assert peer.answers(1)[0].outcome is Outcome.DRAFTED
