"""What gives way when the pool is full, and what never does."""

from __future__ import annotations

import pytest

from sidedraft.engine import Engine, plan_memory
from sidedraft.engine.blocks import BlockPool
from sidedraft.wire.advance import Outcome
from support.engine_client import Client, make_engine, text
from support.fake_draft import FakeDraft, fake_shape


def shown(draft: FakeDraft, answer) -> list[int]:
    assert answer.outcome is Outcome.DRAFTED
    return draft.seen[int(answer.tokens[0])].positions.tolist()


def test_blocks_kept_for_later_give_way_the_oldest_first() -> None:
    client = Client(make_engine(FakeDraft(), blocks=6))
    for seed in (1, 2, 3):
        request = client.open()
        client.step(request.advance(text(32, seed=seed)))
        request.release()
    client.step(client.open().advance(text(32, seed=4)))
    present = {}
    for seed in (1, 2, 3):
        request = client.open(text(32, seed=seed))
        [answer] = client.step(request.no_rows(text(0)))
        present[seed] = answer.rows_present
        request.release()
    assert present == {1: 0, 2: 32, 3: 32}
    assert client.engine.stats().evictions == 2


def test_the_beginning_of_a_prefix_is_kept_longest() -> None:
    client = Client(make_engine(FakeDraft(), blocks=4))
    request = client.open()
    client.step(request.advance(text(64)))
    request.release()
    client.step(client.open().advance(text(16, seed=2)))
    [answer] = client.step(client.open(text(64)).no_rows(text(0)))
    assert answer.rows_present == 48
    assert answer.context_start == 0


def test_then_a_request_lets_go_of_its_own_oldest_rows() -> None:
    draft = FakeDraft()
    client = Client(make_engine(draft, blocks=4))
    other = client.open()
    client.step(other.advance(text(16, seed=9)))
    request = client.open()
    client.step(request.advance(text(48)))
    [answer] = client.step(request.advance(text(64)[48:], depth=1))
    assert shown(draft, answer) == list(range(16, 64))
    [answer] = client.step(other.no_rows(text(0), depth=1))
    assert shown(draft, answer) == list(range(16))


def test_and_where_that_frees_nothing_new_rows_become_a_hole() -> None:
    draft = FakeDraft()
    client = Client(make_engine(draft, blocks=2))
    client.step(client.open().advance(text(32, seed=9)))
    request = client.open()
    [answer] = client.step(request.advance(text(20), depth=1))
    assert shown(draft, answer) == []
    assert (answer.committed, answer.context_start) == (20, 20)
    assert client.engine.stats().counters.rows_without_room == 20


def test_shared_blocks_are_not_let_go_for_room_that_they_would_not_give() -> None:
    draft = FakeDraft()
    client = Client(make_engine(draft, blocks=3))
    client.step(client.open().advance(text(32)))
    request = client.open(text(32))
    [answer] = client.step(request.advance(text(64)[32:], depth=1))
    assert shown(draft, answer) == [*range(32), *range(48, 64)]


def test_more_rows_than_the_pool_holds_keep_the_newest() -> None:
    draft = FakeDraft()
    client = Client(make_engine(draft, blocks=3))
    [answer] = client.step(client.open().advance(text(100), depth=1))
    assert shown(draft, answer) == list(range(64, 100))


def test_a_hole_is_filled_when_its_rows_come() -> None:
    draft = FakeDraft()
    client = Client(make_engine(draft))
    request = client.open(text(40))
    client.step(request.no_rows(text(0)))
    [answer] = client.step(request.advance(text(40), first=0, depth=1))
    assert shown(draft, answer) == list(range(40))


def test_memory_of_an_unfinished_launch_is_not_handed_out_again() -> None:
    draft = FakeDraft()
    client = Client(make_engine(draft, blocks=2))
    request = client.open()
    flight = client.engine.launch(client.sequencer.push(request.advance(text(32), depth=1)))
    request.release()
    assert client.engine.stats().blocks_pinned == 2
    other = client.open()
    second = client.engine.launch(client.sequencer.push(other.advance(text(16, seed=2))))
    client.engine.finish(flight)
    [answer] = client.engine.finish(second)
    assert answer.rows_present == 0
    assert client.engine.stats().blocks_free == 2


def test_memory_that_an_unfinished_launch_reads_is_not_handed_out_either() -> None:
    client = Client(make_engine(FakeDraft(), blocks=2))
    writer = client.open()
    client.step(writer.advance(text(32)))
    flight = client.engine.launch(client.sequencer.push(writer.no_rows(text(0), depth=1)))
    writer.release()
    assert (client.engine.stats().blocks_pinned, client.engine.stats().blocks_kept) == (2, 0)
    second = client.engine.launch(client.sequencer.push(client.open().advance(text(16, seed=2))))
    client.engine.finish(flight)
    assert client.engine.finish(second)[0].rows_present == 0
    assert client.engine.stats().blocks_kept == 2


def test_a_kept_block_found_again_is_evicted_by_nobody() -> None:
    pool = BlockPool(3)
    first, second = pool.take(), pool.take()
    assert first is not None
    assert second is not None
    assert pool.publish(first, b"first")
    assert pool.publish(second, b"second")
    pool.drop(first)
    pool.drop(second)
    assert pool.find(b"first") == first
    assert pool.take() == second
    assert pool.take() is None
    assert pool.find(b"second") is None
    assert not pool.publish(second, b"first")


def test_a_pinned_block_is_found_while_it_waits() -> None:
    pool = BlockPool(2)
    block = pool.take()
    assert block is not None
    pool.publish(block, b"key")
    pool.launched = 1
    pool.used[block] = 1
    pool.drop(block)
    assert (pool.pinned, pool.take()) == (1, None)
    assert pool.find(b"key") == block
    pool.complete(1)
    assert pool.take() is None
    pool.drop(block)
    assert pool.take() == block


@pytest.mark.parametrize("window", [1, 2, 16, 17, 20, 33])
def test_a_window_is_exact_in_rows(window: int) -> None:
    draft = FakeDraft(fake_shape(window=window))
    client = Client(make_engine(draft))
    request = client.open()
    for end in (10, 16, 17, 40, 41, 64):
        start = len(request.tokens)
        [answer] = client.step(request.advance(text(end)[start:], depth=1))
        assert shown(draft, answer) == list(range(max(0, end - window + 1), end))


def test_rows_outside_the_window_are_let_go_and_stay_findable() -> None:
    client = Client(make_engine(FakeDraft(), window=17))
    client.step(client.open().advance(text(64)))
    stats = client.engine.stats()
    assert (stats.blocks_held, stats.blocks_kept) == (1, 3)
    [answer] = client.step(client.open(text(32)).no_rows(text(0)))
    assert (answer.context_start, answer.rows_present) == (16, 16)


def test_the_operators_window_overrides_the_drafts() -> None:
    draft = FakeDraft(fake_shape(window=30))
    for window in (10, 50):
        client = Client(make_engine(draft, window=window))
        [answer] = client.step(client.open().advance(text(64), depth=1))
        assert len(shown(draft, answer)) == window - 1


def test_a_context_beyond_the_scratch_is_its_newest_rows() -> None:
    draft = FakeDraft()
    client = Client(make_engine(draft, blocks=5, requests=1, memory=14_000))
    limit = client.engine.plan.context_limit
    assert 0 < limit < 80
    [answer] = client.step(client.open().advance(text(80), depth=1))
    assert shown(draft, answer) == list(range(80 - limit, 80))


@pytest.mark.parametrize("memory", [20_000, 1 << 20, 5_000_001])
def test_memory_is_what_the_plan_says(memory: int) -> None:
    draft = FakeDraft()
    plan = plan_memory(draft.shape, draft.dtype, kv_memory=memory, max_requests=8, block_size=16)
    engine = Engine(draft, plan)
    assert engine.allocated_bytes == plan.pool_bytes + plan.scratch_bytes <= memory
