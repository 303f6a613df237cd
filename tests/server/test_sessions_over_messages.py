"""What a server does with messages, good and bad: two loops in one thread, a real engine, virtual time."""

from __future__ import annotations

import dataclasses

import msgspec
import numpy as np
import pytest

from sidedraft.server.phases import Phase
from sidedraft.transport.base import Disconnected, Lane
from sidedraft.wire import messages as m
from sidedraft.wire.advance import Advance, Outcome
from sidedraft.wire.errors import Code, WireError
from support.engine_client import text
from support.server_bench import ServerBench
from support.wire_peer import WirePeer, make_advance

WIDTH = 4


@pytest.fixture
def bench() -> ServerBench:
    bench = ServerBench()
    bench.open()
    return bench


def opening(request: int, length: int = 5, *, depth: int = 2, generation: int = 0) -> Advance:
    return make_advance(
        request, 0, 0, text(length, seed=request), width=WIDTH, depth=depth, generation=generation
    )


def test_a_hello_before_the_model_is_loaded_is_refused_and_welcome_after() -> None:
    bench = ServerBench()
    peer = bench.peer(greet=False)
    peer.say(bench.hello())
    assert peer.expect(m.Refusal).code == Code.NOT_READY
    bench.open()
    agreement = peer.greet(bench.hello())
    assert (agreement.max_depth, agreement.row_format.name) == (3, "f32")


def test_a_draining_server_takes_no_new_session_and_says_goodbye(bench: ServerBench) -> None:
    peer = bench.peer()
    bench.lifecycle.enter(Phase.DRAINING, "SIGTERM")
    late = bench.peer(greet=False)
    late.say(bench.hello())
    assert late.expect(m.Refusal).code == Code.DRAINING
    bench.dispatcher.farewell("SIGTERM")
    assert peer.expect(m.Goodbye).reason == "SIGTERM"


def test_an_opening_with_a_depth_is_answered_with_a_draft(bench: ServerBench) -> None:
    peer = bench.peer()
    peer.advance(opening(1))
    (answer,) = peer.answers(1)
    assert (answer.outcome, answer.committed, answer.rows_present, len(answer.tokens)) == (
        Outcome.DRAFTED,
        5,
        5,
        2,
    )


def test_proposals_of_many_sessions_share_a_forward(bench: ServerBench) -> None:
    peers = [bench.peer() for _ in range(3)]
    for peer in peers:
        peer.advance(opening(1))
    for peer in peers:
        batch = peer.expect(object, timeout=0)
        assert batch.timings.batch == 3  # type: ignore[attr-defined]
    assert {seen.batch for seen in bench.draft.seen} == {3}


def test_numbers_that_come_by_two_lanes_are_applied_in_order(bench: ServerBench) -> None:
    peer = bench.peer()
    prompt = text(40)
    peer.advance(make_advance(1, 1, 30, prompt[30:], width=WIDTH, depth=2))
    bench.turn()
    assert peer.quiet()  # waits for number 0
    peer.advance(make_advance(1, 0, 0, prompt[:30], width=WIDTH), lane=Lane.BULK)
    first, second = peer.answers(2)
    assert (first.number, first.outcome, second.number, second.outcome) == (
        0,
        Outcome.INGESTED,
        1,
        Outcome.DRAFTED,
    )
    assert second.rows_present == 40
    payload = peer.codec.payload_size(peer.batch(make_advance(1, 0, 0, prompt[:30], width=WIDTH)))
    assert peer.expect(m.Credit).bytes == payload


def test_one_bad_advance_hurts_only_its_request(bench: ServerBench) -> None:
    peer = bench.peer()
    bad = opening(2)
    bad.tokens[3] = bench.shape.vocab_size
    peer.advance(opening(1), bad, opening(3))
    answers = {answer.request: answer for answer in peer.answers(3)}
    assert {r: a.outcome for r, a in answers.items()} == {
        1: Outcome.DRAFTED,
        2: Outcome.REFUSED,
        3: Outcome.DRAFTED,
    }
    assert answers[2].error == Code.BAD_TOKEN
    # What follows the bad one in its generation is refused; a new generation goes on.
    peer.advance(make_advance(2, 1, 5, text(1), width=WIDTH, depth=1), opening(2, generation=1))
    outcomes = [(a.generation, a.outcome, a.error) for a in peer.answers(2)]
    assert (0, Outcome.REFUSED, Code.UNKNOWN_REQUEST) in outcomes
    assert (1, Outcome.DRAFTED, "") in outcomes


@pytest.mark.parametrize(
    "frames",
    [
        [b""],
        [b"\xff" * 40],
        [msgspec.msgpack.encode({"type": "nonsense"})],
        [msgspec.msgpack.encode({"type": "advances", "session": 1})],
        [msgspec.msgpack.encode({"type": "heartbeat"}), b"payload"],
        [msgspec.msgpack.encode([[[[1]]]])],
    ],
)
@pytest.mark.parametrize("lane", Lane)
def test_a_message_that_cannot_be_read_costs_nothing_but_itself(
    bench: ServerBench, frames: list[bytes], lane: Lane
) -> None:
    peer, canary = bench.peer(), bench.peer()
    peer.advance(opening(1))
    peer.answers(1)
    peer.raw(frames, lane)
    bench.turn()
    if lane is Lane.CONTROL:
        assert not peer.expect(m.Failure).fatal
    for one in (peer, canary):
        one.advance(opening(9))
        assert one.answers(1)[0].outcome is Outcome.DRAFTED


def test_a_stranger_hears_that_it_has_no_session(bench: ServerBench) -> None:
    peer = bench.peer()
    stranger = WirePeer(bench.network.connect(), bench.turn)
    stranger.codec = peer.codec  # knows the session's id, but is another connection
    stranger.say(m.Heartbeat(**peer.ids, serial=1))
    failure = stranger.expect(m.Failure)
    assert (failure.code, failure.fatal) == (Code.UNKNOWN_SESSION, True)
    peer.advance(opening(1))
    assert peer.answers(1)[0].outcome is Outcome.DRAFTED


def test_another_epoch_is_stale_dropped_and_counted(bench: ServerBench) -> None:
    peer = bench.peer()
    header = {"type": "heartbeat", "session": peer.ids["session"], "epoch": 78, "serial": 1}
    peer.raw([msgspec.msgpack.encode(header)])
    bench.turn()
    assert peer.quiet()
    assert bench.counters.stale.value == 1


def test_a_heartbeat_is_answered_and_keeps_the_lease(bench: ServerBench) -> None:
    peer, silent = bench.peer(), bench.peer()
    for serial in range(10):
        bench.clock.advance(1.0)
        peer.say(m.Heartbeat(**peer.ids, serial=serial))
        pulse = peer.expect(m.Pulse)
        assert (pulse.serial, pulse.phase) == (serial, "ready")
    assert len(bench.dispatcher.sessions) == 1
    failure = silent.expect(m.Failure)
    assert (failure.code, failure.fatal) == (Code.UNKNOWN_SESSION, True)
    # The verifier was only stopped for a while: it says hello again on the same connection.
    silent.greet(bench.hello())
    silent.advance(opening(1))
    assert silent.answers(1)[0].outcome is Outcome.DRAFTED


def test_sessions_are_bounded(bench: ServerBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidedraft.server.greeting.MAX_SESSIONS", 2)
    one, _ = bench.peer(), bench.peer()
    beyond = bench.peer(greet=False)
    beyond.say(bench.hello())
    assert beyond.expect(m.Refusal).code == Code.CAPACITY
    one.say(m.Goodbye(**one.ids))
    beyond.greet(bench.hello())


def test_a_pause_of_the_server_itself_costs_no_session(bench: ServerBench) -> None:
    peer = bench.peer()
    bench.turn()
    bench.clock.advance(60.0)  # the process was stopped, and finds its verifiers' words later
    bench.turn()
    peer.advance(opening(1))
    assert peer.answers(1)[0].outcome is Outcome.DRAFTED
    assert bench.counters.sessions_expired.value == 0


def test_a_stale_message_on_bulk_gives_no_credit(bench: ServerBench) -> None:
    """It was paid for in another session, which has ended."""
    peer = bench.peer()
    frames = peer.codec.encode(peer.batch(opening(1)), bulk=True)
    peer.advance(opening(2), lane=Lane.BULK)
    peer.answers(1)
    credited = peer.expect(m.Credit).bytes
    assert credited == memoryview(frames[1]).nbytes
    header = msgspec.msgpack.decode(frames[0]) | {"session": peer.ids["session"] ^ 1}
    peer.raw([msgspec.msgpack.encode(header), frames[1]], Lane.BULK)
    bench.turn()
    assert peer.quiet()
    assert bench.counters.stale.value == 1


def test_a_session_that_is_replaced_before_it_is_found_stuck_takes_nothing_with_it(
    bench: ServerBench,
) -> None:
    peer = bench.peer()
    (old,) = bench.dispatcher.sessions
    peer.greet(bench.hello())
    bench.dispatcher.sessions.remove(old)
    peer.advance(opening(1))
    assert peer.answers(1)[0].outcome is Outcome.DRAFTED


def test_a_dead_verifiers_requests_are_released(bench: ServerBench) -> None:
    peer = bench.peer()
    peer.advance(opening(1), opening(2))
    peer.answers(2)
    assert bench.engine.stats().requests == 2
    peer.channel.close()
    bench.turn()
    bench.turn()
    assert bench.engine.stats().requests == 0
    assert len(bench.dispatcher.sessions) == 0


def test_a_release_frees_the_request_and_later_advances_of_it_are_refused(bench: ServerBench) -> None:
    peer = bench.peer()
    peer.advance(opening(1))
    peer.answers(1)
    peer.say(m.Release(**peer.ids, requests=(1,), generations=(0,)))
    bench.turn()
    assert bench.engine.stats().requests == 0
    peer.advance(make_advance(1, 1, 5, text(1), width=WIDTH, depth=1))
    assert peer.answers(1)[0].error == Code.STALE_GENERATION


def test_what_waits_of_a_released_request_is_not_computed(bench: ServerBench) -> None:
    peer = bench.peer()
    peer.advance(opening(1), opening(2))
    bench.io_turn()
    peer.say(m.Release(**peer.ids, requests=(1,), generations=(0,)))
    (answer,) = peer.answers(1)
    assert answer.request == 2
    assert {seen.batch for seen in bench.draft.seen} == {1}
    assert next(iter(bench.dispatcher.sessions)).unanswered == 0


def test_goodbye_ends_the_session(bench: ServerBench) -> None:
    peer = bench.peer()
    peer.advance(opening(1))
    peer.answers(1)
    peer.say(m.Goodbye(**peer.ids))
    bench.turn()
    assert bench.engine.stats().requests == 0
    peer.say(m.Heartbeat(**peer.ids, serial=0))
    assert peer.expect(m.Failure).code == Code.UNKNOWN_SESSION


def test_hello_again_replaces_the_session(bench: ServerBench) -> None:
    peer = bench.peer()
    peer.advance(opening(1))
    peer.answers(1)
    before = peer.ids["session"]
    peer.greet(bench.hello())
    assert peer.ids["session"] != before
    assert bench.engine.stats().requests == 0
    peer.advance(opening(1), lane=Lane.BULK)
    assert peer.answers(1)[0].outcome is Outcome.DRAFTED


def test_a_mismatch_is_refused_with_both_values(bench: ServerBench) -> None:
    peer = bench.peer(greet=False)
    target = m.TargetFacts(taps=(1, 4), hidden_size=2, vocab_size=bench.shape.vocab_size)
    peer.say(bench.hello(target=target))
    refusal = peer.expect(m.Refusal)
    assert (refusal.code, refusal.field, refusal.ours, refusal.theirs) == (
        Code.MISMATCH,
        "taps",
        "[1, 3]",
        "[1, 4]",
    )


@pytest.mark.parametrize("fault", ["rows", "propose"])
def test_an_exception_in_a_step_refuses_its_batch_and_the_server_lives(
    bench: ServerBench, fault: str
) -> None:
    one, other = bench.peer(), bench.peer()
    bench.draft.fail = fault
    one.advance(opening(1))
    other.advance(opening(1))
    for peer in (one, other):
        assert peer.answers(1)[0].error == Code.INTERNAL
    assert bench.engine_loop.errors.value == 1
    assert bench.engine_loop.failures == 1
    for peer in (one, other):
        peer.advance(opening(1, generation=1))
        assert peer.answers(1)[0].outcome is Outcome.DRAFTED
    assert bench.engine_loop.failures == 0


def test_credit_comes_back_whatever_becomes_of_the_advances(bench: ServerBench) -> None:
    """Applied, refused by rule or by the engine, unreadable, held and released, held and replaced."""
    peer = bench.peer()
    sent = 0

    def bulk(*advances: Advance, spoil: bool = False) -> None:
        nonlocal sent
        frames = peer.codec.encode(peer.batch(*advances), bulk=True)
        sent += memoryview(frames[1]).nbytes
        peer.raw([b"\xff" if spoil else frames[0], frames[1]], Lane.BULK)
        bench.turn()

    bulk(opening(1), opening(2))
    bad = opening(3)
    bad.tokens[0] = bench.shape.vocab_size
    bulk(bad)
    bulk(opening(4), spoil=True)
    bulk(make_advance(5, 3, 0, text(4), width=WIDTH))  # held: numbers 0 to 2 never come
    peer.say(m.Release(**peer.ids, requests=(5,), generations=(0,)))
    bench.turn()
    bulk(make_advance(5, 3, 0, text(4), width=WIDTH, generation=1))
    peer.say(m.Release(**peer.ids, requests=(5,), generations=(8,)))  # of a generation that was never seen
    bench.turn()
    bulk(make_advance(6, 3, 0, text(4), width=WIDTH))
    peer.advance(opening(6, generation=1))
    bench.turn()
    bulk(make_advance(8, 3, 0, text(4), width=WIDTH))
    bad = opening(8, generation=1)  # refused by rule: the generation below it is still held
    bad.tokens[0] = bench.shape.vocab_size
    bulk(bad)
    peer.advance(opening(8, generation=2))
    bench.turn()
    bench.draft.fail = "rows"  # the engine refuses number 0 while number 2 is held
    bulk(make_advance(7, 2, 5, text(4), width=WIDTH))
    peer.advance(opening(7))
    bench.turn()
    peer.advance(opening(7, generation=1))
    bench.turn()
    session = next(iter(bench.dispatcher.sessions))
    credited = 0
    peer.quiet()
    for message in peer.heard:
        if isinstance(message, m.Credit):
            credited += message.bytes
    assert credited == sent
    assert session.held == dict.fromkeys(Lane, 0)
    assert session.unanswered == 0


def test_more_bulk_than_the_credit_ends_the_session() -> None:
    bench = ServerBench(bulk_credit=1 << 15)
    bench.open()
    peer, canary = bench.peer(), bench.peer()
    peer.pump = bench.io_turn  # the engine does not get to it
    for request in range(3):
        peer.advance(make_advance(request, 0, 0, text(900), width=WIDTH), lane=Lane.BULK)
    failure = peer.expect(m.Failure)
    assert (failure.code, failure.fatal) == (Code.TOO_LARGE, True)
    bench.turn()
    assert bench.engine.stats().requests == 0
    canary.advance(opening(1))
    assert canary.answers(1)[0].outcome is Outcome.DRAFTED


def test_refused_requests_are_not_remembered(bench: ServerBench) -> None:
    """A peer that opens ever new requests costs no memory once the engine is full."""
    peer = bench.peer()
    for request in range(60):
        peer.advance(opening(request, 1))
        peer.answers(1)
    session = next(iter(bench.dispatcher.sessions))
    assert len(session.requests) == bench.engine.stats().requests == bench.engine.plan.max_requests


def test_a_message_of_ours_that_breaks_a_rule_costs_its_session_only(
    bench: ServerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, canary = bench.peer(), bench.peer()
    session = next(iter(bench.dispatcher.sessions))

    def unwritable(*_: object, **__: object) -> None:
        raise WireError(Code.TOO_LARGE, "header", "much", "less")

    monkeypatch.setattr(session.codec, "encode", unwritable)
    peer.advance(opening(1))
    canary.advance(opening(1))
    assert canary.answers(1)[0].outcome is Outcome.DRAFTED
    assert len(bench.dispatcher.sessions) == 1


def test_an_expired_proposal_is_applied_but_not_computed(bench: ServerBench) -> None:
    peer = bench.peer()
    peer.advance(opening(1), budget_us=1000)
    bench.io_turn()
    bench.clock.advance(0.002)
    (answer,) = peer.answers(1)
    assert (answer.outcome, answer.committed) == (Outcome.EXPIRED, 5)


def test_a_superseded_proposal_is_not_computed(bench: ServerBench) -> None:
    peer = bench.peer()
    peer.advance(opening(1))
    peer.advance(make_advance(1, 1, 5, text(1), width=WIDTH, depth=2))
    first, second = peer.answers(2)
    assert (first.outcome, second.outcome) == (Outcome.SUPERSEDED, Outcome.DRAFTED)
    assert len(bench.draft.seen) == 1


def test_a_verifier_that_does_not_read_loses_its_session_and_stops_nobody(bench: ServerBench) -> None:
    deaf, canary = bench.peer(), bench.peer()
    for serial in range(200):
        deaf.channel.send(Lane.CONTROL, deaf.codec.encode(m.Heartbeat(**deaf.ids, serial=serial)))
        bench.io_turn()
    assert len(bench.dispatcher.sessions) == 1
    assert bench.counters.sends_refused.value > 0
    assert any(isinstance(event, Disconnected) for event in deaf.channel.poll(0.0))
    canary.advance(opening(1))
    assert canary.answers(1)[0].outcome is Outcome.DRAFTED


def test_a_fault_of_ours_in_handling_ends_only_that_session(
    bench: ServerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer, canary = bench.peer(), bench.peer()
    monkeypatch.setattr("sidedraft.server.reception._job", lambda *_: 1 / 0)
    peer.advance(opening(1))
    bench.turn()
    monkeypatch.undo()
    assert len(bench.dispatcher.sessions) == 1
    canary.advance(opening(1))
    assert canary.answers(1)[0].outcome is Outcome.DRAFTED


def test_namespaces_share_nothing() -> None:
    bench = ServerBench()
    bench.facts = dataclasses.replace(bench.facts, namespaces=frozenset({"a", "b"}))
    bench.open()
    prompt = text(40)
    answers = []
    for name in ("a", "a", "b"):
        peer = bench.peer(greet=False)
        peer.greet(bench.hello(namespace=name))
        peer.advance(make_advance(1, 0, 0, prompt, width=WIDTH, depth=1, rows=len(answers) == 0))
        answers.append(peer.answers(1)[0].rows_present)
    assert answers == [40, 32, 0]  # whole blocks of 16 are found again, inside the namespace


def test_rows_are_not_copied_on_their_way_to_the_engine(bench: ServerBench) -> None:
    peer = bench.peer()
    peer.advance(opening(1))
    bench.io_turn()
    (job,) = bench.inbox.take(0.0)
    assert isinstance(job.advance.rows, np.ndarray)  # type: ignore[union-attr]
    assert not job.advance.rows.flags.owndata  # type: ignore[union-attr]
