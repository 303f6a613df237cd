"""A prefix is kept once, found by content, and never computed again."""

from __future__ import annotations

import numpy as np
import pytest

from sidedraft.engine import Engine
from sidedraft.wire.advance import Outcome
from support.engine_client import Client, make_engine, random_aux, text
from support.fake_draft import FakeDraft


@pytest.fixture
def draft() -> FakeDraft:
    return FakeDraft()


@pytest.fixture
def client(draft: FakeDraft) -> Client:
    return Client(make_engine(draft))


def shown(draft: FakeDraft, answer) -> list[int]:
    assert answer.outcome is Outcome.DRAFTED
    return draft.seen[int(answer.tokens[0])].positions.tolist()


def test_two_requests_with_one_prefix_hold_the_same_blocks(client: Client) -> None:
    first = client.open()
    client.step(first.advance(text(64)))
    assert client.engine.stats().blocks_held == 4
    second = client.open(text(64))
    client.step(second.no_rows(text(0)))
    assert client.engine.stats().blocks_held == 4
    ours, theirs = (client.engine._requests.find(1, r.id) for r in (first, second))
    assert ours is not None
    assert theirs is not None
    assert ours.table.blocks[:4].tolist() == theirs.table.blocks[:4].tolist()


def test_restoring_computes_no_row_again(client: Client, draft: FakeDraft) -> None:
    first = client.open()
    client.step(first.advance(text(64)))
    first.release()
    computed = draft.computed
    resumed = client.open(text(64), of=first)
    [answer] = client.step(resumed.no_rows(text(0), depth=2))
    assert shown(draft, answer) == list(range(64))
    assert draft.computed == computed == client.engine.stats().rows_computed
    assert client.engine.stats().counters.rows_restored == 64


def test_rows_sent_again_for_a_known_prefix_are_not_computed_again(client: Client, draft: FakeDraft) -> None:
    """A target without a prefix cache of its own sends every row of an equal prompt again."""
    client.step(client.open().advance(text(70)))
    computed = draft.computed
    client.step(client.open().advance(text(70)))
    assert draft.computed - computed == 70 - 64
    assert client.engine.stats().counters.rows_dropped == 64
    assert client.engine.stats().blocks_held == 6


@pytest.mark.parametrize("together", [True, False], ids=["in one step", "in the next step"])
def test_a_prefix_whose_rows_come_only_after_the_opening_is_taken_over_once_it_is_there(
    client: Client, draft: FakeDraft, together: bool
) -> None:
    """Two requests of one prefix arrive at once: the target computes it once, and sends its rows once."""
    owner, other = client.open(), client.open(text(64))
    rows, opening = owner.advance(text(64)), other.no_rows(text(70)[64:], depth=1)
    answers = client.step(opening, rows) if together else client.step(opening) + client.step(rows)
    assert answers[0].rows_present == 0
    computed = draft.computed
    [answer] = client.step(other.advance(text(71)[70:], depth=1))
    assert shown(draft, answer) == [*range(64), 70]
    assert draft.computed == computed + 1
    assert client.engine.stats().counters.rows_restored == 64
    assert len(client.engine._requests._wanted) == 0


def test_a_request_that_was_rewound_takes_over_only_what_its_tokens_still_name(
    client: Client, draft: FakeDraft
) -> None:
    owner, other = client.open(), client.open(text(64))
    client.step(other.no_rows(text(70)[64:]))
    client.step(other.no_rows(text(40, seed=3), first=32))
    client.step(owner.advance(text(64)))
    [answer] = client.step(other.advance(text(1), depth=1))
    assert shown(draft, answer) == [*range(32), 72]


def test_who_waits_for_a_prefix_and_ends_is_forgotten(client: Client) -> None:
    others = [client.open(text(64)) for _ in range(2)]
    client.step(*(other.no_rows(text(0)) for other in others))
    wanted = client.engine._requests._wanted
    assert len(wanted) == 8
    others[0].release()
    assert len(wanted) == 4
    others[1].release()
    assert len(wanted) == 0
    assert wanted._waiting == {}
    client.step(client.open().advance(text(64)))
    assert client.engine.stats().blocks_held == 4


@pytest.mark.parametrize("offset", range(0, 65, 5))
def test_resuming_at_any_offset_gives_exactly_the_whole_blocks_below_it(
    client: Client, draft: FakeDraft, offset: int
) -> None:
    client.step(client.open().advance(text(64)))
    resumed = client.open(text(offset))
    [answer] = client.step(resumed.no_rows(text(0), depth=1))
    assert shown(draft, answer) == list(range(offset // 16 * 16))


def test_a_block_that_straddles_the_first_new_token_is_found(client: Client, draft: FakeDraft) -> None:
    client.step(client.open().advance(text(64)))
    resumed = client.open(text(40))
    [answer] = client.step(resumed.no_rows(text(64)[40:], depth=1))
    assert shown(draft, answer) == list(range(64))


@pytest.mark.parametrize(
    "other",
    [{"context_key": b"adapter"}, {"namespace": "tenant"}, {"target": b"another"}, {"private": True}],
    ids=lambda other: next(iter(other)),
)
def test_requests_that_must_not_share_share_nothing(client: Client, draft: FakeDraft, other: dict) -> None:
    client.step(client.open().advance(text(64)))
    for name in ("namespace", "target"):
        if name in other:
            setattr(client, name, other.pop(name))
    [answer] = client.step(client.open(text(64), **other).no_rows(text(0), depth=1))
    assert answer.rows_present == 0
    computed = draft.computed
    client.step(client.open(**other).advance(text(64)))
    assert draft.computed == computed + 64
    assert client.engine.stats().blocks_held == 8


def test_a_private_request_is_not_published(client: Client) -> None:
    client.step(client.open(private=True).advance(text(64)))
    assert client.engine.stats().index == 0


def test_lookup_off_still_publishes(client: Client) -> None:
    client.step(client.open(lookup=False).advance(text(32)))
    [answer] = client.step(client.open(text(32), lookup=False).no_rows(text(0)))
    assert (answer.rows_present, client.engine.stats().index) == (0, 2)


def test_sessions_share_inside_a_namespace(draft: FakeDraft) -> None:
    engine = make_engine(draft)
    one, other = Client(engine, owner=1), Client(engine, owner=2)
    one.step(one.open().advance(text(32)))
    engine.release_owner(1)
    [answer] = other.step(other.open(text(32)).no_rows(text(0)))
    assert answer.rows_present == 32


def test_requests_admitted_in_one_step_do_not_see_each_other_unfinished_rows(
    client: Client, draft: FakeDraft
) -> None:
    """Published before it was written: the second would read what is not there yet."""
    first, second, third = client.open(), client.open(text(48)), client.open()
    aux = random_aux(client.rng, 48, client.width)
    answers = client.step(
        first.advance(text(48), aux=aux),
        second.no_rows(text(0), depth=1),
        third.advance(text(48), aux=aux, depth=1),
    )
    assert answers[1].rows_present == 0
    assert shown(draft, answers[1]) == []
    assert shown(draft, answers[2]) == list(range(48))
    assert draft.computed == 96
    stats = client.engine.stats()
    assert (stats.index, stats.counters.collisions, stats.blocks_held) == (3, 3, 6)


def test_nothing_is_published_before_its_launch_has_completed(client: Client) -> None:
    engine = client.engine
    writing = engine.launch(client.sequencer.push(client.open().advance(text(32))))
    reading = client.open(text(32))
    early = engine.launch(client.sequencer.push(reading.no_rows(text(0), depth=1)))
    engine.finish(writing)
    [answer] = engine.finish(early)
    assert answer.rows_present == 0
    [late] = client.step(client.open(text(32)).no_rows(text(0), depth=1))
    assert late.rows_present == 32


def test_a_collision_leaves_the_later_copy_private(client: Client, draft: FakeDraft) -> None:
    first, second = client.open(), client.open()
    client.step(first.advance(text(30)), second.advance(text(30)))
    client.step(first.advance(text(32)[30:]))
    client.step(second.advance(text(32)[30:]))
    ours, theirs = (client.engine._requests.find(1, r.id) for r in (first, second))
    assert ours is not None
    assert theirs is not None
    assert not set(ours.table.blocks[:2]) & set(theirs.table.blocks[:2])
    assert client.engine.stats().index == 2


def test_a_published_block_never_changes_under_a_rewind(client: Client, draft: FakeDraft) -> None:
    first = client.open()
    client.step(first.advance(text(32)))
    other = client.open(text(32))
    client.step(other.no_rows(text(0)))
    request = client.engine._requests.find(1, first.id)
    assert request is not None
    before = client.engine._storage.read(request.table.slots[:32]).clone()
    shared = request.table.blocks[1]
    client.step(first.advance(text(20, seed=3), first=20))
    assert request.table.blocks[1] != shared
    [answer] = client.step(other.no_rows(text(0), depth=1))
    seen = draft.seen[int(answer.tokens[0])]
    assert seen.rows.flatten(1).equal(before)


def test_a_fork_goes_its_own_way_from_a_shared_block(client: Client, draft: FakeDraft) -> None:
    client.step(client.open().advance(text(48)))
    fork = client.open(np.concatenate([text(32), text(8, seed=5)]))
    [answer] = client.step(fork.advance(text(6, seed=6), depth=2))
    assert shown(draft, answer) == [*range(32), *range(40, 46)]
    assert answer.context_start == 0
    assert answer.rows_present == 38


def test_rows_of_a_prompt_that_no_proposal_sees_are_kept_for_others_or_not_computed(draft: FakeDraft) -> None:
    """Two prompts share their first 64 tokens; the draft sees 31 rows."""
    for retain, seen, computed in (("all", 16 + 16 - 1, 128 + 16), ("window", 16, 31 + 16)):
        draft.computed = 0
        engine = make_engine(draft, window=32)
        engine = Engine(draft, engine.plan, retain=retain, poison=True)
        client = Client(engine)
        [answer] = client.step(client.open().advance(text(128), depth=1))
        assert shown(draft, answer) == list(range(128 - 31, 128))
        # The target has the shared part in its cache, and computes what follows.
        fork = client.open(text(64))
        [answer] = client.step(fork.advance(text(16, seed=1), depth=1))
        assert len(shown(draft, answer)) == seen
        assert draft.computed == computed
        counters = engine.stats().counters
        assert counters.rows_unseen == 128 + 16 - computed
        assert counters.rows_without_room == counters.rows_dropped == 0
