"""How advances become messages: complete, in order, within every limit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidedraft.verifier.state.cutting import Cut, TooLongError, cut, parcels
from sidedraft.verifier.state.entry import Entry
from sidedraft.wire.advance import Opening
from sidedraft.wire.messages import SessionLimits

LIMITS = SessionLimits(
    control_payload=2048, bulk_payload=1024, bulk_credit=4096, requests=8, batch=5, context=10_000
)
CONTROL_ROWS = 512


def entry(first: int, count: int, rows_at: int, rows: int, skip: int = 0) -> Entry:
    tokens = np.arange(first, first + count, dtype=np.int32)
    return Entry("r", first, tokens, first + count, 3, rows_at, rows, rows_skip=skip)


def make(one: Entry, *, opening: Opening | None = None, row_bytes: int = 64, number: int = 5) -> Cut:
    return cut(
        one,
        0,
        7,
        2,
        number,
        one.depth,
        opening,
        row_bytes=row_bytes,
        control_rows=CONTROL_ROWS,
        limits=LIMITS,
    )


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    first, count = draw(st.integers(0, 300)), draw(st.integers(0, 400))
    low, high = sorted((draw(st.integers(0, count)), draw(st.integers(0, count))))
    return entry(first, count, first + low, high - low, draw(st.integers(0, 9)))


@given(entries(), st.sampled_from([4, 64, 200, 900]), st.integers(0, 200))
def test_the_pieces_state_exactly_what_the_entry_states(one: Entry, row_bytes: int, prefix: int) -> None:
    opening = Opening(np.zeros(prefix, np.int32))
    result = make(one, opening=opening, row_bytes=row_bytes, number=0)
    advances = [piece.advance for piece in result.pieces]
    assert np.concatenate([a.tokens for a in advances]).tolist() == one.tokens.tolist()
    following = [*one.tokens.tolist(), one.next_token]
    at, row = one.first, one.rows_skip
    for number, piece in enumerate(result.pieces):
        a = piece.advance
        assert (a.request, a.generation, a.number, a.first) == (7, 2, number, at)
        assert (a.opening is not None) == (number == 0)
        at = a.end
        assert a.next_token == following[at - one.first]
        assert a.first <= a.rows_at
        assert a.rows_at + len(piece.rows) <= a.end or not len(piece.rows)
        if len(piece.rows):
            assert piece.rows.start == row
            assert a.rows_at - one.rows_at == row - one.rows_skip
            row = piece.rows.stop
        size = piece.layout(row_bytes).size
        assert size <= (LIMITS.bulk_payload if result.bulk else LIMITS.control_payload)
    assert row == one.rows_skip + one.row_count
    assert [a.depth for a in advances] == [0] * (len(advances) - 1) + [3]
    assert result.bulk == (
        one.row_count * row_bytes > CONTROL_ROWS or not one_control(one, row_bytes, prefix)
    )


def one_control(one: Entry, row_bytes: int, prefix: int) -> bool:
    aligned = -(-4 * (prefix + len(one.tokens)) // 64) * 64
    return aligned + one.row_count * row_bytes <= LIMITS.control_payload


def test_a_prefix_greater_than_any_frame_fits_nowhere() -> None:
    with pytest.raises(TooLongError):
        make(entry(600, 10, 600, 0), opening=Opening(np.zeros(600, np.int32)), number=0)


def test_a_row_greater_than_a_frame_fits_nowhere() -> None:
    with pytest.raises(TooLongError):
        make(entry(0, 1, 0, 1), row_bytes=2000)


@given(st.lists(st.tuples(entries(), st.booleans()), max_size=12))
def test_messages_keep_limits_and_order_and_never_mix_asking_with_others(
    chosen: list[tuple[Entry, bool]],
) -> None:
    cuts = []
    for one, asks in chosen:
        one.depth = 3 if asks else 0
        cuts.append(make(one))
    made = list(parcels(cuts, session=9, row_bytes=64, limits=LIMITS, deadline=4.0))
    sent = [piece for parcel in made for piece in parcel.pieces]
    assert sorted(map(id, sent)) == sorted(id(piece) for one in cuts for piece in one.pieces)
    for parcel in made:
        assert parcel.session == 9
        assert parcel.size <= (LIMITS.bulk_payload if parcel.bulk else LIMITS.control_payload)
        assert 1 <= len(parcel.pieces) <= LIMITS.batch
        asking = [piece.advance.depth > 0 for piece in parcel.pieces]
        assert all(asking) or not any(asking)
        assert parcel.deadline == (4.0 if any(asking) else None)
    control = [parcel for parcel in made if not parcel.bulk]
    assert [p.deadline is None for p in control] == sorted(p.deadline is None for p in control)
    for one in cuts:  # pieces of one entry stay in order on their lane
        places = [sent.index(piece) for piece in one.pieces]
        assert places == sorted(places)


def test_more_quiet_work_than_a_control_message_holds_takes_the_bulk_lane() -> None:
    few = [make(entry(0, 8, 0, 8)) for _ in range(3)]
    many = [make(entry(0, 8, 0, 8)) for _ in range(6)]
    for one in few + many:
        one.pieces[0].advance.depth = 0
    assert {p.bulk for p in parcels(few, session=1, row_bytes=64, limits=LIMITS, deadline=0)} == {False}
    assert {p.bulk for p in parcels(many, session=1, row_bytes=64, limits=LIMITS, deadline=0)} == {True}
