"""Memory is divided before anything is allocated, and never beyond the flag."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sidedraft.engine import MemoryPlan, plan_memory
from sidedraft.settings import SettingsError
from support.fake_draft import fake_shape

SHAPE = fake_shape(max_position=8192)


def plan(memory: int, **options) -> MemoryPlan:
    sizes = {"max_requests": 8, "block_size": 16} | options
    return plan_memory(SHAPE, torch.float32, kv_memory=memory, **sizes)


@given(
    memory=st.integers(1, 1 << 28),
    requests=st.integers(1, 256),
    block=st.sampled_from([16, 32, 64, 128]),
    window=st.sampled_from([None, 1, 100, 4096]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_a_plan_fits_or_says_what_would(memory: int, requests: int, block: int, window, dtype) -> None:
    options = {"max_requests": requests, "block_size": block, "window": window}
    try:
        made = plan_memory(SHAPE, dtype, kv_memory=memory, **options)
    except SettingsError as error:
        least = int(error.expected.removeprefix("at least ").split()[0])
        memory = max(least, memory + 1)
        made = plan_memory(SHAPE, dtype, kv_memory=least, **options)
    assert made.pool_bytes + made.scratch_bytes <= memory
    assert made.blocks >= 2
    assert 0 <= made.context_limit <= made.scratch_columns - made.query_rows
    assert made.context_limit <= (window or 1 << 30)


def test_a_longest_context_fits_where_memory_allows_it() -> None:
    assert plan(4 << 20).context_limit == 8192
    assert plan(64 << 20).scratch_columns >= 8 * 8192


def test_scratch_does_not_grow_beyond_its_use() -> None:
    small, large = plan(1 << 28), plan(1 << 30)
    assert small.scratch_columns == large.scratch_columns


def test_defaults_are_the_drafts_own() -> None:
    made = plan(1 << 20)
    assert (made.max_depth, made.window, made.max_position) == (3, None, 8192)
    assert plan(1 << 20, max_position=100_000).max_position == 8192
    assert plan(1 << 20, window=64).window == 64


@pytest.mark.parametrize("depth", [0, 4])
def test_a_depth_the_draft_does_not_have_is_refused(depth: int) -> None:
    with pytest.raises(SettingsError, match=f"max_depth: {depth} is not allowed; expected 1 to 3"):
        plan(1 << 20, max_depth=depth)


def test_the_table_names_everything_that_is_held() -> None:
    shown = str(plan(1 << 20))
    for word in ("K/V pool", "scratch", "--kv-memory", "staging", "prefix index", "tokens"):
        assert word in shown
