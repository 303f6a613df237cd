"""A session beyond its share is refused, with the limit's name, and costs nobody else anything."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from sidedraft.server.quotas import Quotas
from sidedraft.server.sessions import Session
from sidedraft.settings import ServerSettings, SettingsError
from sidedraft.transport.base import Lane
from sidedraft.wire import messages as m
from sidedraft.wire.advance import Advance, Answer, Outcome
from sidedraft.wire.errors import Code
from support.engine_client import text
from support.server_bench import ServerBench
from support.wire_peer import WirePeer, make_advance

WIDTH = 4


def opening(request: int, length: int = 5, *, generation: int = 0, rows: bool = True) -> Advance:
    tokens = text(length, seed=request)
    return make_advance(request, 0, 0, tokens, width=WIDTH, depth=2, generation=generation, rows=rows)


def bench_with(quotas: Quotas = Quotas(), *, requests: int | None = None) -> ServerBench:  # noqa: B008
    bench = ServerBench()
    bench.quotas = quotas
    if requests is not None:
        limits = msgspec.structs.replace(bench.facts.limits, requests=requests)
        bench.facts = dataclasses.replace(bench.facts, limits=limits)
    bench.open()
    return bench


def session_of(bench: ServerBench, peer: WirePeer) -> Session:
    session = bench.dispatcher.sessions.of_id(peer.ids["session"])
    assert session is not None
    return session


def refused(answers: list[Answer]) -> list[str]:
    """Details of the refusals; every one is for a limit."""
    found = [answer for answer in answers if answer.outcome is Outcome.REFUSED]
    assert {answer.error for answer in found} <= {Code.CAPACITY}
    return [answer.detail for answer in found]


def served(bench: ServerBench, canary: WirePeer, request: int = 77) -> None:
    canary.advance(opening(request))
    assert canary.answers(1)[0].outcome is Outcome.DRAFTED
    canary.say(m.Release(**canary.ids, requests=(request,), generations=(0,)))
    bench.turn()


def test_no_session_takes_every_place_of_the_engine() -> None:
    bench = bench_with(requests=3)
    greedy, canary = bench.peer(), bench.peer()
    assert greedy.agreement is not None
    assert greedy.agreement.limits.requests == 3
    greedy.advance(*(opening(request) for request in range(20)))
    assert refused(greedy.answers(20)) == ["requests of this session is 4, expected at most 3 open"] * 17
    assert bench.engine.stats().requests == 3
    served(bench, canary)
    greedy.say(m.Release(**greedy.ids, requests=(0,), generations=(0,)))
    greedy.advance(opening(9, generation=1))
    assert refused(greedy.answers(1)) == []
    greedy.advance(opening(1, generation=1))  # a request it holds is opened again without a place more
    assert refused(greedy.answers(1)) == []


def test_advances_beyond_the_bound_are_refused_until_others_are_answered() -> None:
    bench = bench_with(Quotas(advances=3))
    peer, canary = bench.peer(), bench.peer()
    peer.advance(*(opening(request, 1) for request in range(4)))
    assert refused(peer.answers(4)) == ["advances of this session is 3, expected fewer than 3 unanswered"]
    served(bench, canary)
    peer.advance(opening(9))
    assert refused(peer.answers(1)) == []


def test_bytes_beyond_the_bound_are_refused_until_others_are_answered() -> None:
    probe = bench_with().peer()
    size = probe.codec.payload_size(probe.batch(opening(1)))
    bench = bench_with(Quotas(waiting=2 * size))
    peer, canary = bench.peer(), bench.peer()
    for request in range(3):
        peer.advance(opening(request))
        bench.io_turn()
    canary.advance(opening(1))
    assert refused(peer.answers(3)) == [
        f"bytes of this session is {3 * size}, expected at most {2 * size} waiting on control"
    ]
    assert refused(canary.answers(1)) == []
    peer.advance(opening(9))
    assert refused(peer.answers(1)) == []
    assert session_of(bench, peer).held == dict.fromkeys(Lane, 0)


def test_rows_beyond_the_bound_are_refused_and_come_free_with_their_request() -> None:
    bench = bench_with(Quotas(rows=50))
    peer, canary = bench.peer(), bench.peer()
    peer.advance(opening(1, 30))
    peer.advance(opening(2, 30))
    assert refused(peer.answers(2)) == ["rows of this session is 60, expected at most 50 held"]
    assert session_of(bench, peer).rows == 30
    served(bench, canary)
    peer.advance(opening(2, 30, generation=1, rows=False))  # without rows there is nothing to hold
    assert refused(peer.answers(1)) == []
    peer.say(m.Release(**peer.ids, requests=(1,), generations=(0,)))
    bench.turn()
    assert session_of(bench, peer).rows == 0
    peer.advance(opening(3, 40))
    assert refused(peer.answers(1)) == []
    assert session_of(bench, peer).rows == 40


def test_rows_that_the_engine_does_not_keep_are_not_held() -> None:
    bench = bench_with(Quotas(rows=100))
    peer = bench.peer()
    peer.advance(opening(1, 30))
    peer.answers(1)
    again = text(30, seed=1)
    for number in range(1, 10):  # the same rows again and again, which the engine drops
        peer.advance(make_advance(1, number, 0, again, width=WIDTH, depth=1))
        assert refused(peer.answers(1)) == []
    assert session_of(bench, peer).rows == 30


def test_rows_of_a_refused_or_replaced_generation_are_free() -> None:
    bench = bench_with(Quotas(rows=50))
    peer = bench.peer()
    bad = opening(1, 40)
    bad.tokens[3] = bench.shape.vocab_size
    peer.advance(bad)
    assert peer.answers(1)[0].error == Code.BAD_TOKEN
    for generation in range(1, 4):
        peer.advance(opening(1, 40, generation=generation))
        assert refused(peer.answers(1)) == []
    bench.draft.fail = "rows"
    peer.advance(opening(1, 40, generation=4))
    assert peer.answers(1)[0].error == Code.INTERNAL
    assert session_of(bench, peer).rows == 0


def test_the_default_leaves_an_eighth_of_the_places_to_others() -> None:
    given = {"draft": "d", "target": "t"}
    assert ServerSettings(**given, max_requests=64).wire().requests == 56
    assert ServerSettings(**given, max_requests=4).wire().requests == 4
    assert ServerSettings(**given, max_requests=64, session_requests=64).wire().requests == 64
    with pytest.raises(SettingsError, match="session_requests: 65 is not allowed"):
        ServerSettings(**given, max_requests=64, session_requests=65)
    with pytest.raises(
        SettingsError, match="session_bytes: 1024 is not allowed; expected at least a message"
    ):
        ServerSettings(**given, session_bytes=1024)
