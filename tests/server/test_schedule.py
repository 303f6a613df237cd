"""The schedule: order per request, one slice between proposals, nothing lost and nobody forgotten."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sidedraft.server.job import Job, Receipt
from sidedraft.server.schedule import MAX_ADVANCES, Schedule
from sidedraft.transport.base import Lane
from sidedraft.wire.advance import Advance

SLICE = 1000
BATCH = 4


def job(owner: int, request: int, number: int, *, depth: int = 0, size: int = 0, generation: int = 0) -> Job:
    rows = np.zeros((1, size), np.uint8) if size else None
    advance = Advance(request, generation, number, 0, np.zeros(1, np.int32), 0, depth, 0, rows)
    receipt = Receipt(owner, Lane.CONTROL, size, 1)
    return Job(owner, "default", b"", "f32", advance, 0.0, None, serial=0, receipt=receipt)


def schedule() -> Schedule:
    return Schedule(slice_bytes=SLICE, batch=BATCH)


def numbers(jobs: list[Job]) -> list[tuple[int, int]]:
    return [(job.advance.request, job.advance.number) for job in jobs]


def test_a_proposal_waits_for_at_most_one_slice_however_much_ingest_is_queued() -> None:
    plan = schedule()
    for number in range(50):
        plan.add(job(1, 1, number, size=SLICE))
    assert numbers(plan.next()) == [(1, 0)]
    plan.add(job(2, 9, 0, depth=3))  # arrives while that slice runs
    assert numbers(plan.next()) == [(9, 0)]


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
            take(taken)
        elif what == "drop":
            take(plan.drop(owner, request, 0))
        else:
            take(plan.drop_owner(owner))
        assert len(plan) == sum(counts.values()) - out
    while jobs := plan.next():
        take(jobs)
    assert seen == counts
