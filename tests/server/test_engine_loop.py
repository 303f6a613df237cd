"""The engine thread's loop when the engine misbehaves, and when it is told to stop."""

from __future__ import annotations

import threading

import pytest

from sidedraft.server.engine_loop import MAX_BREAKDOWNS
from sidedraft.transport.base import Lane
from sidedraft.wire.advance import Advance, Outcome
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
