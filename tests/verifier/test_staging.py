"""Rows on their way into messages: formats, buffers, and what happens when there are none."""

from __future__ import annotations

import numpy as np

from sidedraft.settings import VerifierSettings
from sidedraft.verifier import submitting
from sidedraft.verifier.buffers import BufferPool
from sidedraft.verifier.pending import Pending
from sidedraft.verifier.state.outcome import Draft
from sidedraft.verifier.submission import Submission
from support.ladder_world import IMPATIENT, SETTINGS, World
from support.model_server import rows_of


def test_a_pool_is_bounded_and_replaces_what_was_abandoned() -> None:
    pool = BufferPool(64, 2)
    first, second = pool.take(), pool.take()
    assert first is not None
    assert second is not None
    assert pool.take() is None
    pool.give(first)
    assert pool.take() is first
    pool.abandon(first)
    third = pool.take()
    assert third is not None
    assert third is not second
    assert pool.take() is None


def test_every_row_arrives_whichever_lane_it_takes() -> None:
    w = World()
    w.connect()
    short, long = w.start(5), w.start(200)
    for _ in range(5):
        w.take(w.submit())
        for request in (short, long):
            request.grow()
    w.take(w.submit())
    assert w.counters.bytes_bulk > 0
    assert w.counters.rows_dropped == 0
    assert w.counters.rows_sent == w.server.rows == len(short.tokens) + len(long.tokens)
    assert w.server.confused == []


def test_without_a_free_buffer_rows_stay_here_and_tokens_still_travel() -> None:
    settings = VerifierSettings(
        deadline=0.1, handshake_timeout=1.0, limits=SETTINGS.limits, staging_segments=1
    )
    w = World(settings=settings, service=0.05)
    w.connect()
    request = w.start(200)
    begun = w.clock()
    pending = w.submit()
    assert w.clock() <= pending.deadline, "the wait for buffers ends with the step's own deadline"
    assert w.clock() > begun
    w.take(pending)
    assert w.counters.rows_dropped > 0
    w.sleep(1.0)
    (peer,) = w.server.peers.values()
    (held,) = peer.requests.values()
    assert held.tokens == request.tokens
    assert 0 < len(held.rows) < len(request.tokens)
    assert w.server.confused == []
    w.until_drafted(request)
    assert w.overrun <= 1e-9


def test_buffers_of_a_lost_session_are_abandoned_and_replaced() -> None:
    w = World(settings=IMPATIENT)
    w.connect()
    request = w.start(200)
    w.server.mute = True
    w.submit()
    w.turn()
    w.network.cut(w.channel)
    w.server.mute = False
    w.until_drafted(request)
    assert w.counters.buffers_abandoned > 0
    w.sleep(1.0)
    w.shared.take_buffer(bulk=False)
    assert all(pool.in_use <= 1 for pool in (w.shared._bulk, w.shared._control))
    assert w.counters.rows_dropped == 0


class Never:
    """An event that never comes."""

    def query(self) -> bool:
        return False


class Impossible:
    """Rows that cannot be copied."""

    def __getitem__(self, place: slice) -> object:
        raise RuntimeError("device lost")

    shape = (3, 4)
    dtype = np.dtype(np.float32)


def submit_three(w: World, rows: object, ready: object = None) -> object:
    one = Submission("x", 0, [1, 2, 3], 4, depth=2, rows=rows)  # type: ignore[arg-type]
    step = submitting.submit(w.shared, w.filler, [one], ready)  # type: ignore[arg-type]
    return Pending(w.shared, step, [one]).result()["x"]


def test_rows_that_are_never_computed_cost_a_hole_and_at_most_the_deadline() -> None:
    w = World(settings=IMPATIENT)
    w.connect()
    tick = w.clock

    class Ticking(Never):
        def query(self) -> bool:
            tick.advance(0.001)
            return False

    submit_three(w, rows_of(0, [1, 2, 3]), Ticking())
    assert w.counters.rows_dropped == 3
    w.sleep(0.1)
    (peer,) = w.server.peers.values()
    (held,) = peer.requests.values()
    assert (held.tokens, held.rows) == ([1, 2, 3], set())


def test_an_event_that_fails_costs_a_hole_and_no_error() -> None:
    class Failing:
        def query(self) -> bool:
            raise RuntimeError("device lost")

    w = World()
    w.connect()
    assert isinstance(submit_three(w, rows_of(0, [1, 2, 3]), Failing()), Draft)
    assert w.counters.rows_dropped == 3


def test_a_copy_that_fails_costs_a_hole_and_no_error() -> None:
    w = World()
    w.connect()
    assert isinstance(submit_three(w, Impossible()), Draft)
    assert w.counters.rows_dropped == 3
    w.shared.take_buffer(bulk=False)
    assert w.shared._control.in_use == 1
