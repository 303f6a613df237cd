"""Each rule on an advance: what breaks it, what the error says, and that nobody else is harmed."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidedraft.wire import advance_codec, headers
from sidedraft.wire.advance import Advance, Opening
from sidedraft.wire.batch import Advances, OpeningHeader
from sidedraft.wire.codec import Codec, End
from sidedraft.wire.errors import Code, WireError
from support import protocol as p

VERIFIER, SERVER = p.codecs()


def rows(count: int) -> np.ndarray:
    return np.full((count, p.ROW_BYTES), 7, dtype=np.uint8)


def running(**changes: object) -> Advance:
    """Three tokens at 10, the last two with rows."""
    fields = {
        "request": 5,
        "generation": 1,
        "number": 9,
        "first": 10,
        "tokens": p.tokens_of(1, 2, 3),
        "next_token": 4,
        "depth": 2,
        "rows_at": 11,
        "rows": rows(2),
    }
    return Advance(**{**fields, **changes})


def opening(**changes: object) -> Advance:
    return running(number=0, first=2, rows_at=2, opening=Opening(p.tokens_of(8, 9), b"key"), **changes)


BROKEN: list[tuple[str, Callable[[], Advance], Code, str, str, str]] = [
    ("first beyond", lambda: running(first=p.LAST + 1), Code.BAD_FIELD, "first", "513", "0 to 512"),
    ("first negative", lambda: running(first=-1), Code.BAD_FIELD, "first", "-1", "0 to 512"),
    ("end beyond", lambda: running(first=510, rows=None), Code.BAD_FIELD, "count", "3", "at most 2, from"),
    ("next token", lambda: running(next_token=97), Code.BAD_TOKEN, "next_token", "97", "0 to 96"),
    ("next token -1", lambda: running(next_token=-1), Code.BAD_TOKEN, "next_token", "-1", "0 to 96"),
    ("next token 2**31", lambda: running(next_token=2**31), Code.BAD_TOKEN, "next_token", "2147483648", "0"),
    ("token", lambda: running(tokens=p.tokens_of(1, 97, 98)), Code.BAD_TOKEN, "tokens", "97", "0 to 96"),
    ("token -1", lambda: running(tokens=p.tokens_of(1, 2, -1)), Code.BAD_TOKEN, "tokens", "-1", "0 to 96"),
    ("depth", lambda: running(depth=p.DEPTH + 1), Code.BAD_FIELD, "depth", "5", "0 to 4"),
    ("depth -1", lambda: running(depth=-1), Code.BAD_FIELD, "depth", "-1", "0 to 4"),
    ("rows above tokens", lambda: running(rows=rows(4)), Code.BAD_ROWS, "rows", "4", "at most 3"),
    ("rows before", lambda: running(rows_at=9), Code.BAD_ROWS, "rows_at", "9", "10 to 11"),
    ("rows after", lambda: running(rows_at=12), Code.BAD_ROWS, "rows_at", "12", "10 to 11"),
    (
        "rows_at",
        lambda: running(rows_at=-(2**63), rows=None),
        Code.BAD_FIELD,
        "rows_at",
        "-922337",
        "0 to 512",
    ),
    ("no opening", lambda: running(number=0), Code.BAD_OPENING, "opening", "absent", "present at number 0"),
    (
        "late opening",
        lambda: running(opening=Opening(p.tokens_of(*range(10)))),
        Code.BAD_OPENING,
        "opening",
        "present",
        "absent at number 9",
    ),
    (
        "short prefix",
        lambda: running(number=0, opening=Opening(p.tokens_of(8))),
        Code.BAD_OPENING,
        "prefix",
        "1",
        "10 tokens, as many as first",
    ),
    (
        "prefix token",
        lambda: running(number=0, first=1, rows=None, opening=Opening(p.tokens_of(-5))),
        Code.BAD_TOKEN,
        "tokens",
        "-5",
        "0 to 96",
    ),
    (
        "context key",
        lambda: running(number=0, first=0, rows=None, opening=Opening(context_key=bytes(65))),
        Code.BAD_OPENING,
        "context_key",
        "65 bytes",
        "at most 64 bytes",
    ),
    ("request", lambda: running(request=2**63), Code.BAD_FIELD, "request", "9223372036854775808", "0 to 9"),
    ("generation", lambda: running(generation=-3), Code.BAD_FIELD, "generation", "-3", "0 to 9"),
    ("number", lambda: running(number=2**64 - 1), Code.BAD_FIELD, "number", "18446744073709551615", "0 to 9"),
]


@pytest.mark.parametrize(
    ("build", "code", "field", "value", "expected"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN]
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_broken_rule_refuses_its_own_advance_only(place, build, code, field, value, expected):
    good = [opening(request=6), running(request=7)]
    bad = build()
    batch = p.batch_of(*good[:place], bad, *good[place:])
    decoded = SERVER.decode(VERIFIER.encode(batch))
    assert p.plain(decoded.advances) == p.plain(good)
    (error,) = decoded.refused
    assert (error.code, error.field) == (code, field)
    assert error.value.startswith(value)
    assert error.expected.startswith(expected)
    named = field not in ("request", "generation", "number")
    assert (error.request, error.generation, error.number) == (
        (bad.request, bad.generation, bad.number) if named else (None, None, None)
    )


@settings(deadline=None)
@given(batch=p.advance_batches, data=st.data())
def test_any_mix_of_broken_advances_leaves_the_others_exact(batch, data):
    flags = data.draw(st.lists(st.booleans(), min_size=len(batch.advances), max_size=len(batch.advances)))
    for flag, advance in zip(flags, batch.advances, strict=True):
        if flag:
            field, value = data.draw(
                st.sampled_from(
                    [("next_token", p.VOCAB), ("depth", p.DEPTH + 1), ("first", p.LAST + 1), ("number", -1)]
                )
            )
            setattr(advance, field, value)
    decoded = SERVER.decode(VERIFIER.encode(batch))
    kept = [advance for flag, advance in zip(flags, batch.advances, strict=True) if not flag]
    assert p.plain(decoded.advances) == p.plain(kept)
    assert len(decoded.refused) == sum(flags)


@pytest.mark.parametrize("change", [-p.ROW_BYTES, -4, -1, 1, p.ROW_BYTES])
def test_a_payload_that_does_not_add_up_refuses_every_advance_by_name(change):
    header, payload = VERIFIER.encode(p.batch_of(running(), running(request=6)))
    size = payload.nbytes + change
    decoded = SERVER.decode([header, (bytes(payload) + bytes(99))[:size]])
    assert decoded.advances == []
    assert [(e.code, e.request) for e in decoded.refused] == [(Code.BAD_PAYLOAD, 5), (Code.BAD_PAYLOAD, 6)]
    assert (
        decoded.refused[0].detail
        == f"payload is {size} bytes, expected {payload.nbytes} bytes, by its header"
    )


@pytest.mark.parametrize("column", ["count", "rows", "prefix"])
@pytest.mark.parametrize("value", [-1, 2**40, 2**63 - 1, 2**64 - 1])
def test_counts_that_would_overflow_any_sum_are_refused_before_they_are_used(column, value):
    head = advance_codec.header(p.batch_of(opening(), opening(request=6)))
    if column == "prefix":
        opens = [OpeningHeader(value, b"", False, True), head.opening[1]]
        head = msgspec.structs.replace(head, opening=opens)
    else:
        head = msgspec.structs.replace(head, **{column: [value, 3]})
    decoded = SERVER.decode([headers.encode(head), bytes(1000)])
    assert decoded.advances == []
    assert [e.code for e in decoded.refused] == [Code.BAD_PAYLOAD] * 2


@pytest.mark.parametrize("column", ["count", "rows"])
def test_counts_that_only_add_up_do_not_move_one_advances_share_into_anothers(column):
    header, payload = VERIFIER.encode(p.batch_of(running(), running(request=6)))
    shifted = msgspec.msgpack.decode(header)
    shifted[column] = [-1, sum(shifted[column]) + 1]
    decoded = SERVER.decode([msgspec.msgpack.encode(shifted), payload])
    assert decoded.advances == []
    assert [e.code for e in decoded.refused] == [Code.BAD_PAYLOAD] * 2


COLUMNS = [
    name for name in Advances.__struct_fields__ if name not in ("session", "epoch", "serial", "budget_us")
]


@pytest.mark.parametrize("column", COLUMNS[1:])
def test_columns_of_different_lengths_cannot_be_read_at_all(column):
    head = advance_codec.header(p.batch_of(running(), running(request=6)))
    cut = msgspec.structs.replace(head, **{column: getattr(head, column)[:1]})
    with pytest.raises(WireError, match=f"malformed: {column} is 1 rows, expected 2 rows"):
        SERVER.decode([headers.encode(cut)])


@pytest.mark.parametrize("column", COLUMNS)
def test_a_column_is_bounded_while_it_is_read(column):
    head = advance_codec.header(p.batch_of(running()))
    long = msgspec.structs.replace(head, **{column: getattr(head, column) * (p.MAX_BATCH + 1)})
    with pytest.raises(WireError, match=f"malformed: advances.{column} is .* length <= 4096"):
        SERVER.decode([headers.encode(long)])


@pytest.mark.parametrize(
    ("advance", "field"),
    [
        (running(tokens=np.zeros(3, dtype=np.int64)), "tokens"),
        (running(tokens=np.zeros((1, 3), dtype=np.int32)), "tokens"),
        (running(rows=np.zeros((2, p.ROW_BYTES - 1), dtype=np.uint8)), "rows"),
        (running(rows=np.zeros((2, p.ROW_BYTES), dtype=np.int8)), "rows"),
        (running(number=0, opening=Opening(np.zeros(10, dtype=np.uint32))), "prefix"),
    ],
)
def test_a_sender_cannot_pack_arrays_of_another_form(advance, field):
    with pytest.raises(WireError) as caught:
        VERIFIER.encode(p.batch_of(advance))
    assert (caught.value.field, caught.value.request) == (field, 5)


def test_an_integer_that_msgpack_cannot_hold_is_refused_where_it_is_made():
    with pytest.raises(WireError, match="bad_field: advances is an integer too large"):
        VERIFIER.encode(p.batch_of(running(request=2**64)))


def test_rows_that_are_not_contiguous_are_packed_all_the_same():
    wide = np.arange(8 * p.ROW_BYTES, dtype=np.uint8).reshape(4, 2 * p.ROW_BYTES)[::2, : p.ROW_BYTES]
    decoded = SERVER.decode(VERIFIER.encode(p.batch_of(running(rows=wide))))
    assert np.array_equal(decoded.advances[0].rows, wide)


def test_a_draft_without_taps_has_rows_of_no_bytes():
    target = msgspec.structs.replace(p.TARGET, taps=())
    hello = msgspec.structs.replace(p.HELLO, target=target)
    agreed = p.agreement(hello, facts=p.facts(target=target))
    verifier, server = p.codecs(agreed)
    batch = p.batch_of(running(rows=None))
    assert p.plain(server.decode(verifier.encode(batch))) == p.plain(batch)


def test_an_id_that_does_not_fit_spoils_no_neighbour_at_the_edge_of_the_range():
    edge = running(request=p.MAX_ID, generation=p.MAX_ID, number=p.MAX_ID)
    bad = running(request=p.MAX_ID, generation=0, depth=9)
    decoded = SERVER.decode(VERIFIER.encode(p.batch_of(edge, running(request=2**63), bad)))
    assert p.plain(decoded.advances) == p.plain([edge])
    assert [e.request for e in decoded.refused] == [None, p.MAX_ID]


def test_several_advances_of_one_request_keep_their_order():
    batch = p.batch_of(
        running(), running(number=10, first=13, rows_at=13), running(number=11, first=16, rows=None)
    )
    assert [a.number for a in SERVER.decode(VERIFIER.encode(batch)).advances] == [9, 10, 11]


def test_a_codec_serves_one_end():
    assert (Codec(End.SERVER).end.peer, Codec(End.VERIFIER).end.peer) == (End.VERIFIER, End.SERVER)
