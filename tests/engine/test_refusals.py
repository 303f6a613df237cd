"""A work that cannot be applied is answered, hurts nobody else, and ends its generation."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from sidedraft.drafts.base import Family, Layout
from sidedraft.engine import Work
from sidedraft.wire.advance import Answer, Opening, Outcome
from sidedraft.wire.errors import Code
from support.engine_client import Client, Request, make_engine, random_aux, text
from support.fake_draft import VOCAB, FakeDraft, fake_shape


@pytest.fixture
def draft() -> FakeDraft:
    return FakeDraft()


@pytest.fixture
def client(draft: FakeDraft) -> Client:
    return Client(make_engine(draft, requests=4))


def changed(work: Work, **fields: object) -> Work:
    for name, value in fields.items():
        setattr(work.advance, name, value)
    return work


BAD_WORKS: dict[str, tuple[Code, Callable[[Request], Work]]] = {
    "gap": (Code.GAP, lambda r: r.advance(text(2), first=11)),
    "depth below": (Code.BAD_FIELD, lambda r: changed(r.advance(text(2)), depth=-1)),
    "depth beyond": (Code.BAD_FIELD, lambda r: r.advance(text(2), depth=4)),
    "anchor below": (Code.BAD_TOKEN, lambda r: r.advance(text(2), anchor=-1)),
    "anchor beyond": (Code.BAD_TOKEN, lambda r: r.advance(text(2), anchor=VOCAB)),
    "rows before": (Code.BAD_ROWS, lambda r: changed(r.advance(text(2)), rows_at=9)),
    "rows after": (Code.BAD_ROWS, lambda r: changed(r.advance(text(2)), rows_at=11)),
    "row size": (Code.BAD_ROWS, lambda r: changed(r.advance(text(2)), rows=np.zeros((2, 15), np.uint8))),
    "row shape": (Code.BAD_ROWS, lambda r: changed(r.advance(text(2)), rows=np.zeros(32, np.uint8))),
    "rows not finite": (Code.BAD_ROWS, lambda r: r.advance(text(2), aux=np.full((2, 4), np.inf))),
    "opened again": (Code.BAD_OPENING, lambda r: changed(r.advance(text(2)), opening=Opening())),
    "row format": (Code.BAD_FIELD, lambda r: other_format(r.advance(text(2)))),
}


def other_format(work: Work) -> Work:
    work.row_format = "f64"
    return work


@pytest.mark.parametrize("name", BAD_WORKS)
def test_a_bad_work_is_refused_alone(client: Client, name: str) -> None:
    code, make = BAD_WORKS[name]
    bad, good = client.open(), client.open()
    client.step(bad.advance(text(10)), good.advance(text(10)))
    work = make(bad)
    answers = client.step(good.advance(text(1), depth=1), work, good.advance(text(1), depth=1))
    assert [a.outcome for a in answers] == [Outcome.SUPERSEDED, Outcome.REFUSED, Outcome.DRAFTED]
    assert (answers[1].error, answers[1].number) == (code.value, work.advance.number)
    assert answers[1].detail
    assert client.engine.stats().requests == 1


@pytest.mark.parametrize("name", BAD_WORKS)
def test_what_follows_is_refused_until_the_request_is_opened_again(client: Client, name: str) -> None:
    bad = client.open()
    client.step(bad.advance(text(10)))
    client.step(BAD_WORKS[name][1](bad))
    [answer] = client.step(bad.no_rows(text(1)))
    assert (answer.outcome, answer.error) == (Outcome.REFUSED, Code.UNKNOWN_REQUEST)
    [answer] = client.step(client.open(text(10), of=bad).advance(text(1), depth=1))
    assert (answer.outcome, answer.committed) == (Outcome.DRAFTED, 11)


def test_an_opening_must_agree_with_its_prefix(client: Client) -> None:
    work = client.open(text(5)).advance(text(3))
    work.advance.opening = Opening(prefix=text(4))
    [answer] = client.step(work)
    assert (answer.outcome, answer.error) == (Outcome.REFUSED, Code.BAD_OPENING)


def test_an_older_generation_is_refused_and_changes_nothing(client: Client) -> None:
    old = client.open()
    client.step(old.advance(text(8)))
    new = client.open(text(8), of=old)
    client.step(new.advance(text(8)))
    [answer] = client.step(old.advance(text(3)))
    assert (answer.outcome, answer.error, answer.generation) == (Outcome.REFUSED, Code.STALE_GENERATION, 0)
    [answer] = client.step(new.no_rows(text(0), depth=1))
    assert (answer.outcome, answer.committed, answer.rows_present) == (Outcome.DRAFTED, 16, 8)


def test_requests_beyond_the_limit_are_refused_and_the_others_served(client: Client) -> None:
    requests = [client.open() for _ in range(5)]
    answers = client.step(*(request.advance(text(4), depth=1) for request in requests))
    assert [a.outcome for a in answers] == [Outcome.DRAFTED] * 4 + [Outcome.REFUSED]
    assert answers[4].error == Code.CAPACITY
    requests[0].release()
    [answer] = client.step(client.open(of=requests[4]).advance(text(4)))
    assert answer.outcome is Outcome.INGESTED


def test_the_engine_itself_bounds_its_requests(client: Client) -> None:
    """Also when the token side knows of an end before the row side does."""
    requests = [client.open() for _ in range(4)]
    client.step(*(request.advance(text(4)) for request in requests))
    client.sequencer.release(client.owner, requests[0].id, 0)
    [answer] = client.step(client.open().advance(text(4)))
    assert (answer.outcome, answer.error) == (Outcome.REFUSED, Code.CAPACITY)


def test_a_work_that_no_sequencer_saw_is_refused(client: Client) -> None:
    [answer] = client.engine.step([client.open().advance(text(4))])
    assert (answer.outcome, answer.error) == (Outcome.REFUSED, Code.INTERNAL)


def test_a_change_made_to_other_tokens_is_a_gap(client: Client) -> None:
    """The token side went on while the row side lost a work."""
    lost = client.open()
    client.step(lost.advance(text(4)))
    client.sequencer.push(lost.advance(text(4)))
    [answer] = client.step(lost.advance(text(4)))
    assert (answer.outcome, answer.error) == (Outcome.REFUSED, Code.GAP)


def test_rows_that_are_not_finite_are_never_published(client: Client) -> None:
    aux = random_aux(client.rng, 32, client.width)
    aux[5] = np.nan
    [answer] = client.step(client.open().advance(text(32), aux=aux, depth=1))
    assert (answer.outcome, answer.error) == (Outcome.REFUSED, Code.BAD_ROWS)
    stats = client.engine.stats()
    assert (stats.index, stats.blocks_free, stats.requests) == (0, stats.blocks_total, 0)


@pytest.mark.parametrize("where", ["rows", "propose"])
def test_a_broken_launch_ends_its_requests_and_no_others(
    client: Client, draft: FakeDraft, where: str
) -> None:
    bystander, hit = client.open(), client.open()
    client.step(bystander.advance(text(20, seed=1)), hit.advance(text(20, seed=2)))
    draft.fail = where
    with pytest.raises(RuntimeError, match=where):
        client.step(hit.advance(text(20, seed=2), depth=1))
    assert client.engine.stats().requests == 1
    computed = draft.computed
    answers = client.step(hit.no_rows(text(1)), bystander.no_rows(text(0), depth=1))
    assert (answers[0].outcome, answers[0].error) == (Outcome.REFUSED, Code.UNKNOWN_REQUEST)
    assert (answers[1].outcome, answers[1].rows_present) == (Outcome.DRAFTED, 20)
    assert draft.computed == computed, "its rows are not written later, into blocks of somebody else"
    [answer] = client.step(client.open(text(40, seed=2), of=hit).no_rows(text(0)))
    assert answer.rows_present == 16, "what the broken launch may not have written is not found"
    bystander.release()
    stats = client.engine.stats()
    assert stats.blocks_held == 1


def test_expired_and_superseded_proposals_skip_the_pass_and_keep_their_rows(draft: FakeDraft) -> None:
    engine = make_engine(draft)
    now = [10.0]
    engine._clock = lambda: now[0]
    client = Client(engine)
    late, early, overtaken = client.open(), client.open(), client.open()
    works = [
        late.advance(text(5), depth=1, expires=10.0),
        early.advance(text(5), depth=1, expires=10.1),
        overtaken.advance(text(5), depth=1),
        overtaken.advance(text(2)),
    ]
    answers = client.step(*works)
    wanted = [Outcome.EXPIRED, Outcome.DRAFTED, Outcome.SUPERSEDED, Outcome.INGESTED]
    assert [a.outcome for a in answers] == wanted
    assert [a.rows_present for a in answers] == [5, 5, 5, 7]
    assert len(draft.seen) == 1
    counters = engine.stats().counters
    assert (counters.expired, counters.superseded, counters.proposals) == (1, 1, 1)


def test_a_proposal_that_is_not_finite_is_no_draft(client: Client) -> None:
    answers = client.step(
        client.open().advance(text(5), depth=2, anchor=13), client.open().advance(text(5), depth=2, anchor=14)
    )
    assert [a.outcome for a in answers] == [Outcome.NO_DRAFT, Outcome.DRAFTED]
    assert len(answers[0].tokens) == 0


@pytest.mark.parametrize("layout", list(Layout))
def test_beyond_the_drafts_last_position_there_is_no_draft_and_no_error(layout: Layout) -> None:
    draft = FakeDraft(fake_shape(layout=layout, max_position=40))
    client = Client(make_engine(draft))
    request = client.open()
    client.step(request.advance(text(30)))
    outcomes = []
    for _ in range(15):
        [answer] = client.step(request.advance(text(1), depth=3))
        outcomes.append(answer.outcome)
    drafted = 40 - draft.shape.query_rows(3) - 30
    assert outcomes == [Outcome.DRAFTED] * drafted + [Outcome.NO_DRAFT] * (15 - drafted)
    assert answer.committed == 45
    assert draft.computed == 40
    [answer] = client.step(request.advance(text(2), first=20, depth=3))
    assert (answer.outcome, answer.rows_present) == (Outcome.DRAFTED, 22)


def test_asking_again_without_new_tokens_gives_the_same_draft(client: Client, draft: FakeDraft) -> None:
    request = client.open()
    client.step(request.advance(text(20), depth=2))
    [answer] = client.step(request.no_rows(text(0), depth=2))
    assert answer.outcome is Outcome.DRAFTED
    assert draft.seen[0].rows.equal(draft.seen[1].rows)


@pytest.mark.parametrize("rows", ["recurrent", "from_tokens"])
def test_a_family_that_the_engine_cannot_keep_is_refused_at_once(rows: str) -> None:
    draft = FakeDraft(family=Family("chain", rows, lookahead=1))
    with pytest.raises(ValueError, match=f"'chain' has {rows} rows; expected rowwise"):
        make_engine(draft)


def test_an_answer_for_every_work_in_order(client: Client) -> None:
    requests = [client.open() for _ in range(3)]
    works = [request.advance(text(3), depth=i) for i, request in enumerate(requests)]
    answers: list[Answer] = client.step(*works)
    assert [(a.request, a.number) for a in answers] == [(w.advance.request, 0) for w in works]


def test_launches_finish_in_order(client: Client) -> None:
    one = client.engine.launch(client.sequencer.push(client.open().advance(text(3))))
    two = client.engine.launch(client.sequencer.push(client.open().advance(text(3))))
    with pytest.raises(ValueError, match="launch 2 cannot finish"):
        client.engine.finish(two)
    assert one.ready
    client.engine.finish(one)
    client.engine.finish(two)


def test_a_work_of_an_older_generation_is_refused_even_when_it_comes_late_to_the_engine(
    client: Client,
) -> None:
    old = client.open()
    client.step(old.advance(text(10)))
    [late] = client.sequencer.push(old.advance(text(12)[10:]))  # released, and overtaken on its way
    new = client.open(text(10), of=old)
    client.step(new.advance(text(11)[10:]))
    [answer] = client.engine.step([late])
    assert (answer.outcome, answer.error) == (Outcome.REFUSED, Code.STALE_GENERATION)
    [answer] = client.step(new.advance(text(13)[11:], depth=2))
    assert (answer.outcome, answer.committed) == (Outcome.DRAFTED, 13)
