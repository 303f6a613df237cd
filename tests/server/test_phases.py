"""A server's life goes one way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sidedraft.server.phases import Lifecycle, Phase


@given(st.lists(st.sampled_from(Phase), max_size=12))
def test_a_phase_is_never_left_for_an_earlier_one(wishes: list[Phase]) -> None:
    lifecycle = Lifecycle()
    order = list(Phase)
    for wish in wishes:
        before = lifecycle.phase
        entered = lifecycle.enter(wish, f"to {wish}")
        assert entered == (order.index(wish) > order.index(before))
        assert lifecycle.phase == (wish if entered else before)


def test_a_stopping_server_does_not_become_ready() -> None:
    lifecycle = Lifecycle()
    assert lifecycle.enter(Phase.DRAINING, "SIGTERM")
    assert not lifecycle.enter(Phase.READY)
    assert (lifecycle.phase, lifecycle.reason) == (Phase.DRAINING, "SIGTERM")
