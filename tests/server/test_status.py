"""Readiness means that proposals can be served; the status shows numbers, no secrets."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from sidedraft.server.counters import IoCounters
from sidedraft.server.phases import Lifecycle, Phase
from sidedraft.server.status import StatusBoard
from support.server_bench import ServerBench


@dataclass
class Engine:
    failures: int = 0
    step_began: float | None = None

    def queued(self) -> int:
        return 3

    def counts(self) -> dict[str, Any]:
        return {"requests": 1}


@dataclass
class Thread:
    alive: bool = True

    def is_alive(self) -> bool:
        return self.alive


@dataclass
class Io:
    turned: float = 0.0


@dataclass
class Case:
    board: StatusBoard
    engine: Engine = field(default_factory=Engine)
    io: Io = field(default_factory=Io)
    now: float = 0.0
    threads: dict[str, Thread] = field(default_factory=lambda: {"transport": Thread(), "engine": Thread()})


@pytest.fixture
def case() -> Case:
    lifecycle = Lifecycle()
    case = Case(StatusBoard(lifecycle, IoCounters(), clock=lambda: case.now, started=0.0))
    case.board.engine, case.board.io = case.engine, case.io
    case.board.threads.update(case.threads)
    lifecycle.enter(Phase.READY)
    return case


def test_ready_when_everything_lives(case: Case) -> None:
    assert case.board.ready() == (True, "ready")


@pytest.mark.parametrize("phase", [Phase.DRAINING, Phase.FAILED])
def test_not_ready_outside_the_phase_and_the_reason_is_told(case: Case, phase: Phase) -> None:
    case.board.lifecycle.enter(phase, "because")
    assert case.board.ready() == (False, "because")


@pytest.mark.parametrize("name", ["transport", "engine"])
def test_not_ready_when_a_thread_is_dead(case: Case, name: str) -> None:
    case.threads[name].alive = False
    assert case.board.ready() == (False, f"the {name} thread is dead")


def test_not_ready_when_the_transport_thread_hangs(case: Case) -> None:
    case.now = 6.0
    assert not case.board.ready()[0]


def test_not_ready_when_a_step_hangs(case: Case) -> None:
    case.engine.step_began = 0.0
    case.now = case.io.turned = 31.0
    assert not case.board.ready()[0]


def test_repeated_failures_turn_it_off_and_a_good_step_on_again(case: Case) -> None:
    case.engine.failures = 2
    assert case.board.ready()[0]
    case.engine.failures = 3
    assert not case.board.ready()[0]
    case.engine.failures = 0
    assert case.board.ready()[0]


def test_the_status_names_sessions_but_not_their_secret() -> None:
    bench = ServerBench()
    bench.open()
    peer = bench.peer()
    board = StatusBoard(
        bench.lifecycle, bench.counters, clock=bench.clock, sessions=bench.dispatcher.sessions
    )
    status = board.status()
    assert status["sessions"][0]["verifier"] == "test"
    assert status["counts"]["io"]["sessions_opened"] == 1
    assert str(peer.ids["session"]) not in json.dumps(status)
