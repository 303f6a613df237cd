"""Acceptance from nothing but a draft and the next advance."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidedraft.verifier.state.acceptance import Acceptance, accepted
from sidedraft.wire.advance import Tokens

BASE, ANCHOR = 10, 7


def ids(*tokens: int) -> Tokens:
    return np.array(tokens, dtype=np.int32)


@pytest.mark.parametrize(
    ("draft", "first", "tokens", "count"),
    [
        ((1, 2, 3), BASE, (ANCHOR,), 0),
        ((1, 2, 3), BASE, (ANCHOR, 1), 1),
        ((1, 2, 3), BASE, (ANCHOR, 1, 2, 3), 3),
        # The engine stated two steps at once: the first token that is not the draft's ends it.
        ((1, 2, 3), BASE, (ANCHOR, 1, 9, 3), 1),
        ((1, 2, 3), BASE, (ANCHOR, 9, 2, 3), 0),
        ((1, 2), BASE, (ANCHOR, 1, 2, 3, 4), 2),
        # Asked again from the same base, rewound, and another anchor than the draft was made for.
        ((1, 2, 3), BASE, (), None),
        ((1, 2, 3), BASE - 2, (5, 6, ANCHOR, 1), None),
        ((1, 2, 3), BASE, (8, 1, 2), None),
    ],
)
def test_what_an_advance_says_of_a_draft(
    draft: tuple[int, ...], first: int, tokens: tuple[int, ...], count: int | None
) -> None:
    assert accepted(ids(*draft), BASE, ANCHOR, first, ids(*tokens)) == count


@given(draft=st.lists(st.integers(0, 96), min_size=1, max_size=8), data=st.data())
def test_a_target_that_accepts_so_many_is_seen_to(draft: list[int], data: st.DataObject) -> None:
    """A step as the engine runs it: some are accepted, and the one sampled after them is the new anchor."""
    count = data.draw(st.integers(0, len(draft)))
    assert accepted(ids(*draft), BASE, ANCHOR, BASE, ids(ANCHOR, *draft[:count])) == count


def test_nothing_is_known_before_the_first_draft_is_judged() -> None:
    acceptance = Acceptance()
    assert (acceptance.judged, acceptance.length, acceptance.drafted) == (0, None, [])


def test_positions_count_drafts_that_reached_them() -> None:
    acceptance = Acceptance()
    for drafted, taken in ((2, 2), (4, 1), (4, 3), (4, 0)):
        acceptance.add(drafted, taken)
    assert acceptance.drafted == [4, 4, 3, 3]
    assert acceptance.accepted == [3, 2, 1, 0]
    assert (acceptance.judged, acceptance.length) == (4, 1 + 6 / 4)


@given(st.lists(st.integers(1, 6).flatmap(lambda k: st.tuples(st.just(k), st.integers(0, k))), min_size=1))
def test_the_sums_are_those_of_the_drafts(drafts: list[tuple[int, int]]) -> None:
    acceptance = Acceptance()
    for drafted, taken in drafts:
        acceptance.add(drafted, taken)
    assert sum(acceptance.drafted) == sum(drafted for drafted, _ in drafts)
    assert sum(acceptance.accepted) == sum(taken for _, taken in drafts)
    assert acceptance.drafted == sorted(acceptance.drafted, reverse=True)
    assert acceptance.accepted == sorted(acceptance.accepted, reverse=True)
    assert acceptance.length == 1 + sum(taken for _, taken in drafts) / len(drafts)
