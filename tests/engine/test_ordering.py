"""A request's advances come by two connections and are applied strictly by number."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidedraft.engine import Sequencer, Work
from sidedraft.engine.chain import BlockChain
from sidedraft.wire.errors import Code
from support.engine_client import Client, make_engine, text
from support.fake_draft import FakeDraft

CLIENT = Client(make_engine(FakeDraft()))


def sequencer(**options: int) -> Sequencer:
    sizes = {"max_requests": 8, "max_position": 4096, "held": 16} | options
    return Sequencer(BlockChain((b"draft",), 16, secret=b"test"), **sizes)


def numbers(works: list[Work]) -> list[int]:
    return [work.advance.number for work in works]


def refusals(works: list[Work]) -> list[Code | None]:
    return [None if work.refusal is None else work.refusal.code for work in works]


@given(order=st.permutations(range(8)), duplicates=st.lists(st.integers(0, 7), max_size=4))
@settings(max_examples=50, deadline=None)
def test_works_come_out_by_number_once(order: list[int], duplicates: list[int]) -> None:
    request, ordered = CLIENT.open(), sequencer()
    works = [request.no_rows(text(3)) for _ in range(8)]
    out = [due for i in [*order, *duplicates] for due in ordered.push(works[i])]
    assert numbers(out) == list(range(8))
    assert [work.change.end for work in out if work.change] == [3 * (i + 1) for i in range(8)]
    assert ordered.duplicates == len(duplicates)


def test_requests_do_not_wait_for_each_other() -> None:
    one, other, ordered = CLIENT.open(), CLIENT.open(), sequencer()
    one.no_rows(text(1))
    assert ordered.push(one.no_rows(text(1))) == []
    assert numbers(ordered.push(other.no_rows(text(1)))) == [0]


def test_a_refused_work_takes_what_follows_with_it() -> None:
    request, ordered = CLIENT.open(), sequencer()
    first, gap, held = request.no_rows(text(4)), request.no_rows(text(4), first=9), request.no_rows(text(1))
    ordered.push(first)
    assert ordered.push(held) == []
    out = ordered.push(gap)
    assert (numbers(out), refusals(out)) == ([1, 2], [Code.GAP, Code.UNKNOWN_REQUEST])
    assert out[0].refusal is not None
    assert (out[0].refusal.request, out[0].refusal.number) == (request.id, 1)
    assert refusals(ordered.push(request.no_rows(text(1)))) == [Code.UNKNOWN_REQUEST]
    again = CLIENT.open(text(4), of=request)
    assert refusals(ordered.push(again.no_rows(text(1)))) == [None]


def test_a_work_refused_before_it_came_here_is_not_waited_for() -> None:
    request, ordered = CLIENT.open(), sequencer()
    ordered.push(request.no_rows(text(4)))
    request.no_rows(text(1))
    assert ordered.push(request.no_rows(text(1))) == []
    out = ordered.skip(1, request.id, 0, 1)
    assert (numbers(out), refusals(out)) == ([2], [Code.UNKNOWN_REQUEST])
    assert ordered.skip(1, request.id, 0, 1) == []
    assert ordered.skip(1, request.id + 99, 0, 0) == []


def test_a_number_too_far_ahead_ends_the_generation() -> None:
    request, ordered = CLIENT.open(), sequencer(held=3)
    works = [request.no_rows(text(1)) for _ in range(6)]
    assert [ordered.push(work) for work in works[1:4]] == [[], [], []]
    out = ordered.push(works[4])
    assert numbers(out) == [4, 1, 2, 3]
    assert refusals(out)[0] is Code.OUT_OF_ORDER
    assert refusals(ordered.push(works[0])) == [Code.UNKNOWN_REQUEST]


def test_a_new_generation_ends_the_old_one() -> None:
    old, ordered = CLIENT.open(), sequencer()
    ordered.push(old.no_rows(text(4)))
    old.no_rows(text(1))
    ordered.push(old.no_rows(text(1)))
    new = CLIENT.open(text(4), of=old)
    out = ordered.push(new.no_rows(text(1)))
    assert (numbers(out), refusals(out)) == ([2, 0], [Code.UNKNOWN_REQUEST, None])
    assert refusals(ordered.push(old.no_rows(text(1)))) == [Code.STALE_GENERATION]
    assert len(ordered) == 1


def test_works_still_on_their_way_when_their_request_ended_are_stale() -> None:
    request, ordered = CLIENT.open(), sequencer()
    ordered.push(request.no_rows(text(4)))
    late = request.no_rows(text(1))
    ordered.release(1, request.id, 0)
    assert len(ordered) == 0
    assert refusals(ordered.push(late)) == [Code.STALE_GENERATION]
    ordered.release(1, request.id, 0)
    assert refusals(ordered.push(CLIENT.open(text(4), of=request).no_rows(text(1)))) == [None]
    ordered.release(1, request.id, 0)
    assert len(ordered) == 1, "an old release does not end a newer generation"


def test_a_release_brings_out_what_was_held_also_of_an_older_generation() -> None:
    request, ordered = CLIENT.open(), sequencer()
    request.no_rows(text(4))
    held = request.no_rows(text(1))
    assert ordered.push(held) == []
    assert ordered.release(1, request.id, 3) == [held]
    assert refusals([held]) == [Code.UNKNOWN_REQUEST]
    assert ordered.release(1, request.id, 3) == []


def test_a_release_of_an_older_generation_does_not_undo_a_later_one() -> None:
    request, ordered = CLIENT.open(), sequencer()
    late = request.no_rows(text(4))
    late.advance.generation = 2
    ordered.release(1, request.id, 2)
    ordered.release(1, request.id, 0)
    assert refusals(ordered.push(late)) == [Code.STALE_GENERATION]


def test_what_was_held_of_a_released_request_comes_out() -> None:
    request, ordered = CLIENT.open(), sequencer()
    works = [request.no_rows(text(1)) for _ in range(4)]
    for number in (0, 3, 2):
        ordered.push(works[number])
    out = ordered.release(1, request.id, 0)
    assert (numbers(out), refusals(out)) == ([2, 3], [Code.UNKNOWN_REQUEST] * 2)
    assert ordered.release(1, request.id, 0) == []


def test_memory_is_bounded_by_requests_and_sessions_end_whole() -> None:
    ordered = sequencer(max_requests=4)
    requests = [CLIENT.open() for _ in range(5)]
    out = [due for request in requests for due in ordered.push(request.no_rows(text(1)))]
    assert refusals(out) == [None] * 4 + [Code.CAPACITY]
    for request in requests:
        ordered.release(1, request.id, 0)
    for i in range(100):
        ordered.release(1, 1000 + i, 0)
    assert len(ordered._ended) <= 16
    ordered.push(CLIENT.open().no_rows(text(1)))
    ordered.release_owner(1)
    assert (len(ordered), len(ordered._ended)) == (0, 0)


@pytest.mark.parametrize("number", [0, 1])
def test_an_opening_stands_with_number_0_and_only_there(number: int) -> None:
    request, ordered = CLIENT.open(), sequencer()
    works = [request.no_rows(text(2)), request.no_rows(text(2))]
    opening = works[0].advance.opening
    works[0].advance.opening = None if number == 0 else opening
    works[1].advance.opening = opening if number == 1 else None
    out = [due for work in works for due in ordered.push(work)]
    assert refusals(out)[number] is Code.BAD_OPENING
