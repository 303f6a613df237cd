"""The schedule: order per request, one slice between proposals, nothing lost and nobody forgotten."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sidedraft.server.job import Job, Receipt
from sidedraft.server.schedule import CREDITS, MAX_ADVANCES, Schedule, StepBounds
from sidedraft.transport.base import Lane
from sidedraft.wire.advance import Advance

SLICE = 1000
BATCH = 4
ROWS = 100
CONTEXT = 90


def job(
    owner: int,
    request: int,
    number: int,
    *,
    depth: int = 0,
    size: int = 0,
    generation: int = 0,
    first: int = 0,
) -> Job:
    rows = np.zeros((1, size), np.uint8) if size else None
    advance = Advance(request, generation, number, first, np.zeros(1, np.int32), 0, depth, first, rows)
    receipt = Receipt(owner, Lane.CONTROL, size, 1)
    return Job(owner, "default", b"", "f32", advance, 0.0, None, serial=0, receipt=receipt)


def schedule() -> Schedule:
    return Schedule(StepBounds(slice_bytes=SLICE, proposals=BATCH, rows=ROWS, context=CONTEXT))


def numbers(jobs: list[Job]) -> list[tuple[int, int]]:
    return [(job.advance.request, job.advance.number) for job in jobs]


def test_a_proposal_waits_for_at_most_one_slice_however_much_ingest_is_queued() -> None:
    plan = schedule()
    for number in range(50):
        plan.add(job(1, 1, number, size=SLICE))
    assert numbers(plan.next()) == [(1, 0)]
    plan.add(job(2, 9, 0, depth=3))  # arrives while that slice runs
    (proposal,) = plan.next()
    assert (numbers([proposal]), proposal.waited) == ([(9, 0)], 0)
    plan.add(job(2, 9, 1, depth=3), missed=1)  # the same, and the schedule is told
    (proposal,) = plan.next()
    assert (numbers([proposal]), proposal.waited) == ([(9, 1)], 1)


def test_all_proposals_that_waited_through_a_slice_go_before_the_next_one() -> None:
    plan = schedule()
    for number in range(3):
        plan.add(job(1, 1, number, size=SLICE))
    plan.next()
    for request in range(3 * BATCH):
        plan.add(job(2, request, 0, depth=1), missed=1)
    steps = [plan.next() for _ in range(4)]
    assert [len(step) for step in steps] == [BATCH, BATCH, BATCH, 1]
    assert {one.waited for step in steps[:3] for one in step} == {1}
    assert steps[3][0].owner == 1


def test_a_proposal_does_not_wait_while_its_own_rows_are_taken_in() -> None:
    plan = schedule()
    for number in range(5):
        plan.add(job(1, 1, number, size=SLICE))
    plan.add(job(1, 1, 5, depth=2))
    assert [numbers(plan.next()) for _ in range(5)] == [[(1, number)] for number in range(5)]
    (proposal,) = plan.next()
    assert (proposal.advance.number, proposal.waited) == (5, 0)


def test_a_launch_holds_the_rows_of_one_forward_and_sessions_share_it() -> None:
    plan = schedule()
    for request in range(4):
        plan.add(job(1, request, 0, depth=1, first=38))
    plan.add(job(2, 9, 0, depth=1, first=3))
    first, second = plan.next(), plan.next()
    assert sorted(one.owner for one in first) == [1, 1, 2]  # 41 rows of each of a session's, 6 of the other
    assert [one.owner for one in second] == [1, 1]


def test_one_proposal_goes_alone_however_much_it_looks_at() -> None:
    plan = schedule()
    plan.add(job(1, 1, 0, depth=50, first=10_000))
    assert numbers(plan.next()) == [(1, 0)]


def test_sessions_share_the_ingest_however_many_requests_one_has() -> None:
    plan = schedule()
    for number in range(40):
        for request in range(20):
            plan.add(job(1, request, number, size=250))
        plan.add(job(2, 1, number, size=250))
    served = [one.owner for _ in range(10) for one in plan.next()]
    assert served.count(1) == served.count(2) == 20


def test_a_short_prompt_does_not_wait_for_the_end_of_a_long_one() -> None:
    plan = schedule()
    for number in range(100):
        plan.add(job(1, 1, number, size=SLICE - 1))
    plan.next()
    plan.add(job(2, 1, 0, size=SLICE // CREDITS))
    assert [one.owner for one in plan.next()] == [2]


def test_much_that_came_after_a_proposal_does_not_go_along_with_it() -> None:
    plan = schedule()
    plan.add(job(1, 1, 0, depth=1))
    plan.add(job(1, 1, 1, size=SLICE // CREDITS + 1))
    plan.add(job(2, 2, 0, depth=1))
    assert numbers(plan.next()) == [(1, 0), (2, 0)]
    assert numbers(plan.next()) == [(1, 1)]


def test_ingest_goes_on_while_proposals_keep_coming() -> None:
    plan = schedule()
    for number in range(3):
        plan.add(job(1, 1, number, size=SLICE))
    kinds = []
    for number in range(6):
        plan.add(job(2, 2, number, depth=1))
        kinds.append(numbers(plan.next()))
    assert kinds == [[(2, 0)], [(1, 0)], [(2, 1), (2, 2)], [(1, 1)], [(2, 3), (2, 4)], [(1, 2)]]


def test_proposals_of_all_requests_go_together_up_to_the_batch() -> None:
    plan = schedule()
    for request in range(BATCH + 2):
        plan.add(job(request % 2, request, 0, depth=1))
    assert len(plan.next()) == BATCH
    assert len(plan.next()) == 2
    assert plan.next() == []


def test_a_slice_is_filled_from_all_requests_in_turn() -> None:
    plan = schedule()
    for number in range(4):
        for request in (1, 2):
            plan.add(job(1, request, number, size=300))
    assert numbers(plan.next()) == [(1, 0), (2, 0), (1, 1)]
    assert numbers(plan.next()) == [(2, 1), (1, 2), (2, 2)]


def test_an_advance_larger_than_a_slice_goes_alone() -> None:
    plan = schedule()
    plan.add(job(1, 1, 0, size=5 * SLICE))
    plan.add(job(1, 2, 0, size=10))
    assert numbers(plan.next()) == [(1, 0)]
    assert numbers(plan.next()) == [(2, 0)]


def test_empty_advances_do_not_make_a_step_without_end() -> None:
    plan = schedule()
    for number in range(2 * MAX_ADVANCES):
        plan.add(job(1, 1, number))
    assert len(plan.next()) == MAX_ADVANCES


def test_a_release_of_an_older_generation_changes_nothing_for_a_newer_one() -> None:
    plan = schedule()
    plan.add(job(1, 1, 0, size=SLICE))
    plan.add(job(1, 1, 1, size=SLICE))
    plan.next()
    plan.add(job(2, 1, 0, depth=1, generation=3), missed=1)
    assert plan.drop(2, 1, 2) == []
    assert [one.waited for one in plan.next()] == [1]


def test_a_release_takes_out_its_generation_and_older_ones() -> None:
    plan = schedule()
    plan.add(job(1, 1, 4, depth=1))
    plan.add(job(1, 1, 0, size=8, generation=1))
    plan.add(job(2, 1, 0, depth=1))
    assert numbers(plan.drop(1, 1, 0)) == [(1, 4)]
    assert plan.drop(1, 7, 0) == []
    assert [(j.owner, j.advance.generation) for j in plan.next()] == [(2, 0)]
    assert [(j.owner, j.advance.generation) for j in plan.next()] == [(1, 1)]


Step = tuple[str, int, int, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "next", "drop", "leave"]),
        st.integers(1, 3),
        st.integers(0, 3),
        st.sampled_from([0, 0, 2]),
        st.sampled_from([0, 10, 400, 1500]),
    ),
    max_size=60,
)


@given(STEPS)
def test_every_advance_comes_out_once_and_in_order(steps: list[Step]) -> None:
    plan = schedule()
    counts: dict[tuple[int, int], int] = {}
    seen: dict[tuple[int, int], int] = {}
    out = 0

    def take(jobs: list[Job]) -> None:
        nonlocal out
        for one in jobs:
            key = (one.owner, one.advance.request)
            assert one.advance.number == seen.get(key, 0)
            seen[key] = one.advance.number + 1
            out += 1

    for what, owner, request, depth, size in steps:
        key = (owner, request)
        if what == "add":
            counts[key] = counts.get(key, 0) + 1
            plan.add(job(owner, request, counts[key] - 1, depth=depth, size=size))
        elif what == "next":
            taken = plan.next()
            rows = [one.row_bytes for one in taken if not one.advance.depth]
            assert len(rows) <= 1 or sum(rows) <= SLICE
            assert len(taken) >= 1 or len(plan) == 0
            take(taken)
        elif what == "drop":
            take(plan.drop(owner, request, 0))
        else:
            take(plan.drop_owner(owner))
        assert len(plan) == sum(counts.values()) - out
    while jobs := plan.next():
        take(jobs)
    assert seen == counts


ASKS = st.tuples(
    st.integers(1, 3),  # owner
    st.integers(0, 5),  # request
    st.sampled_from([0, 0, 0, 1, 3]),  # depth
    st.sampled_from([0, 10, 400, 1000, 1500]),  # bytes
    st.sampled_from([0, 20, 200]),  # first
)
TURNS = st.lists(st.lists(ASKS, max_size=8), min_size=1, max_size=40)


@given(TURNS)
def test_a_proposal_waits_for_one_slice_at_most_and_says_for_how_many(
    turns: list[list[tuple[int, int, int, int, int]]],
) -> None:
    """What is asked in a turn arrives while the turn's step runs. The slices that a proposal waits for are
    counted here from nothing but the steps that came out."""
    plan = schedule()
    numbers: dict[tuple[int, int], int] = {}
    waits: dict[tuple[int, int, int], int] = {}
    """Slices that a proposal has waited for, once its request has nothing before it."""
    queues: dict[tuple[int, int], list[Job]] = {}

    def heads() -> None:
        for key, queue in queues.items():
            if queue and queue[0].advance.depth:
                waits.setdefault((*key, queue[0].advance.number), 0)

    def step(arriving: list[tuple[int, int, int, int, int]]) -> bool:
        taken = plan.next()
        sliced = bool(taken) and not taken[0].advance.depth
        ahead: set[tuple[int, int]] = set()
        for one in taken:
            key = (one.owner, one.advance.request)
            assert queues[key].pop(0) is one
            if one.advance.depth and key not in ahead:
                assert one.waited == waits.pop((*key, one.advance.number)) <= 1
            ahead.add(key)
        for owner, request, depth, size, first in arriving:
            number = numbers[owner, request] = numbers.get((owner, request), -1) + 1
            queue = queues.setdefault((owner, request), [])
            queue.append(job(owner, request, number, depth=depth, size=size, first=first))
            plan.add(queue[-1], missed=int(sliced))
        heads()
        if sliced:
            for place in waits:
                waits[place] += (place[0], place[1]) not in ahead
        return bool(taken)

    for arriving in turns:
        step(arriving)
    while step([]):
        pass
    assert not any(queues.values())


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 60)), min_size=1, max_size=30),
    st.integers(1, 3),
)
def test_ingest_goes_on_however_many_keep_asking(asks: list[tuple[int, int]], prompts: int) -> None:
    """Every request that is answered asks again at once. Between two slices no more is launched than what
    waited at the first and, for each session, its share meanwhile."""
    plan = schedule()
    for request, (owner, first) in enumerate(asks):
        plan.add(job(owner, request, 0, depth=1, first=first))
    for owner in range(prompts):
        for number in range(20):
            plan.add(job(10 + owner, 0, number, size=SLICE))
    cost = {request: first + 3 for request, (_, first) in enumerate(asks)}
    of = [sum(cost[r] for r, (owner, _) in enumerate(asks) if owner == one) for one in range(1, 5)]
    share = max(of) + ROWS // CREDITS + 2 * max(cost.values())
    launched, slices = 0, 0
    while slices < 20 * prompts:
        step = plan.next()
        if step[0].owner >= 10:
            launched, slices = 0, slices + 1
            continue
        launched += sum(cost[one.advance.request] for one in step)
        assert launched <= 4 * share + ROWS
        for one in step:
            advance = one.advance
            plan.add(job(one.owner, advance.request, advance.number + 1, depth=1, first=advance.first))


@given(st.lists(st.integers(50, SLICE), min_size=2, max_size=4), st.integers(1, 6))
def test_sessions_that_have_enough_to_send_are_served_equal_bytes(sizes: list[int], requests: int) -> None:
    plan = schedule()
    served = dict.fromkeys(range(len(sizes)), 0)
    for owner, size in enumerate(sizes):
        for number in range(2 * SLICE // size + 1):
            for request in range(requests if owner else 1):
                plan.add(job(owner, request, number, size=size))
    for _ in range(40):
        for one in plan.next():
            served[one.owner] += one.row_bytes
            plan.add(one)
    assert max(served.values()) - min(served.values()) <= SLICE // CREDITS + max(sizes)
