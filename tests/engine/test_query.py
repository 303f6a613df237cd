"""Proposals of many requests share forwards of few shapes, within the scratch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidedraft import engine
from sidedraft.engine import plan_memory
from sidedraft.engine.blocks import BlockPool
from sidedraft.engine.buckets import batch_bucket, context_bucket
from sidedraft.engine.query import SHORT, SPREAD, Query, share_forwards
from sidedraft.engine.table import RowTable
from sidedraft.wire.advance import Outcome
from support.engine_client import Client, make_engine, text
from support.fake_draft import FakeDraft

ENGINE = str(Path(engine.__file__).parent)


@given(st.integers(1, 1 << 20))
def test_a_context_is_padded_by_an_eighth_at_most(rows: int) -> None:
    columns = context_bucket(rows, 1 << 21)
    assert rows <= columns <= max(64 * -(-rows // 64), rows + rows // 8 + 1)
    assert context_bucket(columns, 1 << 21) == columns
    assert context_bucket(rows, rows) == rows


def test_the_shapes_are_few() -> None:
    assert len({context_bucket(rows, 1 << 17) for rows in range(0, 1 << 17, 7)}) < 90
    assert [batch_bucket(n) for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 33)] == [
        1, 2, 3, 4, 6, 6, 8, 8, 12, 12, 16, 48
    ]  # fmt: skip


@given(lengths=st.lists(st.integers(0, 9000), min_size=1, max_size=40), columns=st.integers(9100, 60000))
@settings(deadline=None)
def test_groups_fit_the_scratch_and_are_not_padded_out_of_proportion(
    lengths: list[int], columns: int
) -> None:
    draft = FakeDraft()
    plan = plan_memory(draft.shape, draft.dtype, kv_memory=1 << 24, max_requests=12, block_size=16)
    plan = replace(plan, scratch_columns=columns, context_limit=9050)
    table = RowTable(BlockPool(2), 16, 100)
    queries = [Query(i, table, 0, rows, 7, 2) for i, rows in enumerate(lengths)]
    groups = share_forwards(queries, plan, 3)
    assert sorted(q.ticket for group in groups for q in group) == list(range(len(lengths)))
    for group in groups:
        longest = max(q.rows for q in group)
        shape = batch_bucket(len(group)), context_bucket(longest, plan.context_limit) + 3
        assert shape[0] * shape[1] <= columns
        assert shape[0] <= plan.max_batch
        assert longest <= max(SHORT, SPREAD * min(q.rows for q in group))


def test_requests_of_different_lengths_and_depths_are_served_in_one_step() -> None:
    draft = FakeDraft()
    client = Client(make_engine(draft, blocks=200))
    sizes = [(0, 1), (5, 2), (100, 1), (33, 3), (700, 1), (64, 0)]
    requests = [client.open() for _ in sizes]
    works = [
        request.advance(text(size, seed=i), depth=depth, anchor=50 + i)
        for i, (request, (size, depth)) in enumerate(zip(requests, sizes, strict=True))
    ]
    answers = client.step(*works)
    assert [len(a.tokens) for a in answers] == [depth for _, depth in sizes]
    for i, (answer, (size, depth)) in enumerate(zip(answers, sizes, strict=True)):
        if depth:
            seen = draft.seen[int(answer.tokens[0])]
            assert (seen.anchor, seen.depth) == (50 + i, depth)
            assert seen.positions.tolist() == list(range(size))
    assert client.engine.stats().forwards == 3
    alone = client.step(requests[2].no_rows(text(0), depth=1, anchor=52))[0]
    batched = draft.seen[int(answers[2].tokens[0])]
    assert batched.batch > draft.seen[int(alone.tokens[0])].batch
    assert draft.seen[int(alone.tokens[0])].rows.equal(batched.rows)


def test_a_batch_too_large_for_the_scratch_is_cut() -> None:
    draft = FakeDraft()
    client = Client(make_engine(draft, blocks=64, requests=8, memory=200_000))
    requests = [client.open() for _ in range(6)]
    client.step(*(request.advance(text(100)) for request in requests))
    client.engine.plan = replace(client.engine.plan, scratch_columns=300)
    client.engine._passes._plan = client.engine.plan
    answers = client.step(*(request.no_rows(text(0), depth=1) for request in requests))
    assert all(a.outcome is Outcome.DRAFTED and a.rows_present == 100 for a in answers)
    assert client.engine.stats().forwards == 3


@pytest.mark.parametrize("depth", [1, 3])
def test_no_shape_of_a_pass_depends_on_values(depth: int) -> None:
    """Two steps of equal bucket use the same memory, so that a graph of the first could serve the second."""
    draft = FakeDraft()
    client = Client(make_engine(draft))
    seen = []
    gather = client.engine._scratch.gather

    def spy(*arguments):
        context, anchors, ends = gather(*arguments)
        tensors = (context.keys(0), context.values(1), context.positions, context.present, anchors, ends)
        seen.append([(t.data_ptr(), t.shape, t.stride()) for t in tensors])
        return context, anchors, ends

    client.engine._scratch.gather = spy
    for size in (3, 60):
        client.step(client.open().advance(text(size, seed=size), depth=depth))
    assert seen[0] == seen[1]


def lines_run(step: Callable[[], object]) -> int:
    """Lines of the engine's own code that a call runs, each as often as it runs."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace if ENGINE in frame.f_code.co_filename else None

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        step()
    finally:
        sys.settrace(before)
    return count


def test_no_line_runs_once_a_row_of_the_context_or_of_an_advance() -> None:
    client = Client(make_engine(FakeDraft(), blocks=4, block_size=2048, memory=8 << 20))
    asks, advances = [], []
    for rows in (128, 2000):  # of one block each
        request = client.open()
        opening = request.advance(text(rows))
        works = client.sequencer.push(opening)
        advances.append(lines_run(lambda works=works: client.engine.step(works)))
        works = client.sequencer.push(request.no_rows(text(0), depth=2))
        asks.append(lines_run(lambda works=works: client.engine.step(works)))
    assert asks[0] == asks[1]
    assert advances[0] == advances[1]
