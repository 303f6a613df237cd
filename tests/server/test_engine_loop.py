"""The engine thread's loop when the engine misbehaves, and when it is told to stop."""

from __future__ import annotations

import threading

import pytest
from msgspec import UNSET

from sidedraft.server.engine_loop import MAX_BREAKDOWNS
from sidedraft.server.job import Job
from sidedraft.transport.base import Lane
from sidedraft.wire.advance import Advance, Outcome
from sidedraft.wire.batch import AnswerBatch
from sidedraft.wire.errors import Code
from support.engine_client import text
from support.server_bench import ServerBench
from support.wire_peer import make_advance


def opening(generation: int) -> Advance:
    return make_advance(1, 0, 0, text(3), width=4, depth=1, generation=generation)


def break_finish(bench: ServerBench, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("device lost")

    monkeypatch.setattr(bench.engine, "finish", broken)


def test_an_engine_that_cannot_finish_steps_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = ServerBench()
    bench.open()
    peer = bench.peer()
    break_finish(bench, monkeypatch)
    for generation in range(MAX_BREAKDOWNS - 1):
        peer.advance(opening(generation))
        assert peer.answers(1)[0].error == Code.INTERNAL
        assert bench.engine.stats().requests == 0  # what is left of it is not known
    peer.advance(opening(MAX_BREAKDOWNS))
    with pytest.raises(RuntimeError, match="device lost"):
        bench.turn()


def test_what_waits_is_finished_before_the_loop_ends() -> None:
    bench = ServerBench()
    bench.open()
    peer = bench.peer()
    peer.advance(*(make_advance(r, 0, 0, text(3), width=4, depth=1) for r in range(8)))
    bench.io_turn()
    stop = threading.Event()
    stop.set()
    bench.engine_loop.run(stop, drain=5.0)
    bench.io_turn()
    peer.pump = bench.io_turn
    assert {answer.outcome for answer in peer.answers(8)} == {Outcome.DRAFTED}


def test_the_drain_is_bounded() -> None:
    bench = ServerBench()
    bench.open()
    peer = bench.peer()
    peer.advance(*(make_advance(r, 0, 0, text(250, seed=r), width=4) for r in range(4)), lane=Lane.BULK)
    bench.io_turn()

    def launch_slowly(works: list[object]) -> object:
        bench.clock.advance(3.0)
        return original(works)

    original = bench.engine.launch
    bench.engine.launch = launch_slowly  # type: ignore[assignment,method-assign]
    stop = threading.Event()
    stop.set()
    bench.engine_loop.run(stop, drain=5.0)
    assert bench.clock() == pytest.approx(6.0)
    assert bench.engine_loop.queued == 2


def test_what_arrives_after_the_stop_is_not_waited_for() -> None:
    bench = ServerBench()
    bench.open()
    peer = bench.peer()
    generations = iter(range(1000))

    def launch_and_receive_more(works: list[object]) -> object:
        peer.advance(opening(next(generations)))
        bench.io_turn()
        return original(works)

    peer.advance(opening(next(generations)))
    bench.io_turn()
    original = bench.engine.launch
    bench.engine.launch = launch_and_receive_more  # type: ignore[assignment,method-assign]
    stop = threading.Event()
    stop.set()
    bench.engine_loop.run(stop, drain=5.0)
    assert (bench.engine.stats().counters.steps, bench.engine_loop.queued) == (1, 1)


def test_the_answer_says_for_how_many_slices_a_proposal_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bulk rows of one verifier fill many slices; each of the other's proposals arrives while one runs."""
    bench = ServerBench()
    bench.open()
    sender, asker = bench.peer(), bench.peer()
    for r in range(8):
        sender.advance(make_advance(r, 0, 0, text(240, seed=r), width=4), lane=Lane.BULK)
    asker.advance(opening(0))
    bench.io_turn()
    asked = iter(range(1, 5))

    def launch_and_receive(works: list[Job]) -> object:
        bench.clock.advance(0.5)
        if not works[0].advance.depth and (generation := next(asked, None)):
            asker.advance(opening(generation))
            bench.io_turn()
        bench.clock.advance(0.5)
        return original(works)

    original = bench.engine.launch
    monkeypatch.setattr(bench.engine, "launch", launch_and_receive)
    bench.turn()
    asker.pump = None
    heard = [asker.expect(AnswerBatch) for _ in range(5)]
    assert [answers.answers[0].outcome for answers in heard] == [Outcome.DRAFTED] * 5
    assert [answers.timings.slices for answers in heard] == [0, 1, 1, 1, 1]
    assert bench.engine_loop.counts() == {"errors": 0, "slices": 8, "most_waited": 1}


def test_a_session_of_an_older_minor_is_not_told_of_slices() -> None:
    bench = ServerBench()
    bench.open()
    peer = bench.peer(greet=False)
    peer.greet(bench.hello(minors=(0, 1)))
    peer.advance(opening(0))
    assert peer.expect(AnswerBatch).timings.slices is UNSET
