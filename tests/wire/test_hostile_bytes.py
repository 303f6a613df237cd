"""Bytes that nobody should send: decoding raises `WireError` or gives something valid, in bounded memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidedraft.wire import advance_codec, answer_codec, headers
from sidedraft.wire import messages as m
from sidedraft.wire.advance import Advance, Answer, Opening, Outcome
from sidedraft.wire.batch import AdvanceBatch, AnswerBatch
from sidedraft.wire.codec import Codec, Decoded, End
from sidedraft.wire.errors import Code, WireError
from sidedraft.wire.limits import MAX_HEADER
from sidedraft.wire.validate import check
from support import protocol as p

VERIFIER, SERVER = p.codecs()
CODECS = [VERIFIER, SERVER, Codec(End.VERIFIER), Codec(End.SERVER)]

ADVANCES = p.batch_of(
    Advance(1, 0, 0, 2, p.tokens_of(3, 4), 5, 1, opening=Opening(p.tokens_of(1, 2), b"key")),
    Advance(2, 1, 7, 30, p.tokens_of(), 5, 2),
)
ANSWERS = p.answers_of(
    Answer(1, 0, 0, Outcome.DRAFTED, 4, 0, 4, p.tokens_of(9, 8)),
    Answer(2, 1, 7, Outcome.REFUSED, error="gap", detail="words"),
)
SAMPLES: list[tuple[Codec, Decoded]] = [
    (VERIFIER, ADVANCES),
    (VERIFIER, p.HELLO),
    (VERIFIER, m.Release(session=p.SESSION, epoch=p.EPOCH, requests=(1, 2), generations=(0, 0))),
    (VERIFIER, m.Heartbeat(session=p.SESSION, epoch=p.EPOCH, serial=5)),
    (SERVER, ANSWERS),
    (SERVER, m.Pulse(session=p.SESSION, epoch=p.EPOCH, serial=5, progress=1, queued=0, phase="ready")),
    (SERVER, m.Failure(session=p.SESSION, epoch=p.EPOCH, code="internal", detail="words")),
    (SERVER, m.Refusal(code="mismatch", detail="taps", field="taps", ours="[1]", theirs="[2]")),
    (VERIFIER, p.REPORT),
]
FRAMES = [[bytes(frame) for frame in codec.encode(message)] for codec, message in SAMPLES]


def survive(frames: list[bytes], bulk: bool = False) -> None:
    """Every codec refuses the frames, or gives what obeys all rules."""
    for codec in CODECS:
        try:
            found = codec.decode(frames, bulk=bulk)
        except WireError as error:
            assert len(str(error)) < 1000  # noqa: PT017
            continue
        assert_valid(found)


def assert_valid(found: Decoded) -> None:
    """Rules written down a second time, row by row."""
    if isinstance(found, m.Message):
        check(found)
        return
    assert (found.session, found.epoch) == (p.SESSION, p.EPOCH)
    if isinstance(found, AdvanceBatch):
        for a in found.advances:
            assert min(a.request, a.generation, a.number, a.first) >= 0
            assert a.end <= p.LAST
            assert a.row_count == 0 or a.first <= a.rows_at <= a.rows_at + a.row_count <= a.end
            assert a.rows is None or a.rows.shape == (a.row_count, p.ROW_BYTES)
            assert 0 <= a.next_token < p.VOCAB
            assert 0 <= a.depth <= p.DEPTH
            assert (a.opening is not None) is (a.number == 0)
            prefix = p.tokens_of() if a.opening is None else a.opening.prefix
            assert len(prefix) == (a.first if a.opening else 0)
            assert all(0 <= token < p.VOCAB for token in [*a.tokens, *prefix])
        return
    assert isinstance(found, AnswerBatch)
    for answer in found.answers:
        assert 0 <= answer.context_start <= answer.committed
        assert 0 <= answer.rows_present <= answer.committed - answer.context_start
        assert len(answer.tokens) <= p.DEPTH
        assert (len(answer.tokens) > 0) is (answer.outcome is Outcome.DRAFTED)
        assert bool(answer.error) is (answer.outcome is Outcome.REFUSED)
        assert all(0 <= token < p.VOCAB for token in answer.tokens)
        assert answer.confidence is None or all(0 <= c <= 1 for c in answer.confidence)


@settings(deadline=None, max_examples=300)
@given(frames=st.lists(st.binary(max_size=200), max_size=3), bulk=st.booleans())
def test_arbitrary_bytes(frames, bulk):
    survive(frames, bulk)


@st.composite
def mutated(draw: st.DrawFn) -> list[bytes]:
    """A valid message with bytes overwritten, removed, repeated or taken from another message."""
    frames = [bytearray(frame) for frame in draw(st.sampled_from(FRAMES))]
    donor = draw(st.sampled_from(FRAMES))[0]
    for _ in range(draw(st.integers(1, 4))):
        frame = draw(st.sampled_from(frames))
        at = draw(st.integers(0, len(frame)))
        end = min(len(frame), at + draw(st.integers(0, 9)))
        cut = draw(st.integers(0, len(donor)))
        new = draw(
            st.one_of(
                st.binary(min_size=end - at, max_size=end - at),
                st.just(b""),
                st.just(bytes(frame[at:end]) * 2),
                st.just(donor[cut : cut + end - at]),
            )
        )
        frame[at:end] = new
    return [bytes(frame) for frame in frames]


@settings(deadline=None, max_examples=300)
@given(frames=mutated(), bulk=st.booleans())
def test_mutated_messages(frames, bulk):
    survive(frames, bulk)


anything = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**63), 2**64 - 1),
        st.floats(),
        st.text(max_size=5),
        st.binary(max_size=70),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
plain_headers = [
    msgspec.to_builtins(header, builtin_types=(bytes,))
    for header in (
        advance_codec.header(ADVANCES),
        answer_codec.header(ANSWERS),
        *[message for _, message in SAMPLES if isinstance(message, m.Message)],
    )
]


TO_SERVER = ("advances", "hello", "release", "heartbeat", "report")


@st.composite
def rewritten(draw: st.DrawFn) -> dict[str, Any]:
    """A valid header with fields, or single values of columns, replaced, removed or added."""
    header = dict(draw(st.sampled_from(plain_headers)))
    for _ in range(draw(st.integers(1, 3))):
        field = draw(st.sampled_from(sorted(header)))
        value = header[field]
        if isinstance(value, list) and value and draw(st.booleans()):
            copy = list(value)
            copy[draw(st.integers(0, len(copy) - 1))] = draw(
                st.one_of(anything, st.integers(-(2**63), 2**64 - 1))
            )
            header[field] = copy
        elif draw(st.booleans()):
            header[field] = draw(anything)
        elif draw(st.booleans()) and len(header) > 1:
            del header[field]
        else:
            header[draw(st.text(max_size=8))] = draw(anything)
    return header


@settings(deadline=None, max_examples=300)
@given(header=rewritten(), payload=st.sampled_from([None, FRAMES[0][1], FRAMES[4][1], bytes(128)]))
def test_rewritten_headers(header, payload):
    frame = msgspec.msgpack.encode(header)
    survive([frame] if payload is None else [frame, payload])


@pytest.mark.parametrize("header", plain_headers, ids=lambda header: header["type"])
def test_an_unknown_field_is_refused(header):
    end = SERVER if header["type"] in TO_SERVER else VERIFIER
    with pytest.raises(WireError) as caught:
        end.decode([msgspec.msgpack.encode({**header, "novelty": 1})])
    assert str(caught.value) == f"malformed: {header['type']}.novelty is present, expected absent: not known"


@pytest.mark.parametrize("header", plain_headers, ids=lambda header: header["type"])
def test_a_missing_field_is_named(header):
    end = SERVER if header["type"] in TO_SERVER else VERIFIER
    field = list(header)[-1]
    frame = msgspec.msgpack.encode({k: v for k, v in header.items() if k != field})
    optional = field in ("fatal", "strict_identity", "theirs")
    if optional:
        end.decode([frame])
        return
    with pytest.raises(WireError) as caught:
        end.decode([frame])
    assert str(caught.value) == f"malformed: {header['type']}.{field} is absent, expected present"


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (b"", "malformed: header is unreadable (Input data was truncated), expected a msgpack map"),
        (b"\xc1", "malformed: header is unreadable (MessagePack data is malformed"),
        (b"\x01", "malformed: header is `int`, expected `object`"),
        (b"\x80", "malformed: header.type is absent, expected present"),
        (b"\x91" * 100_000, "malformed: header is `array`, expected `object`"),
        (b"\x81\xa4type\xa5novel", "malformed: type is novel, expected one of advances, goodbye, heartbeat,"),
        (
            msgspec.msgpack.encode({"type": "hello", "protocol": 2}),
            "version: hello.protocol is 2, expected 1",
        ),
        (
            b"\x82\xa4type\xa9heartbeat\xa1x" + b"\x91" * 100_000,
            "malformed: header.x is present, expected absent",
        ),
        (
            b"\x82\xa4type\xa9heartbeat\xa7session\xa3\xff\xfe\xff",
            "malformed: header.session is `str`, expected `int`",
        ),
        (FRAMES[3][0] + b"\x01", "malformed: header is unreadable (MessagePack data is malformed: trailing"),
    ],
)
def test_an_unreadable_header_says_what_is_wrong(frame, words):
    with pytest.raises(WireError) as caught:
        SERVER.decode([frame])
    assert str(caught.value).startswith(words)


LENGTHS = {
    "array": b"\xdd\xff\xff\xff\xff",
    "map": b"\xdf\xff\xff\xff\xff",
    "text": b"\xdb\xff\xff\xff\xff",
    "bytes": b"\xc6\xff\xff\xff\xff",
    "extension": b"\xc9\xff\xff\xff\xff\x01",
}
FIELDS = [(header, field) for header in plain_headers for field in header]


@pytest.mark.parametrize("length", LENGTHS)
def test_a_length_that_lies_costs_no_memory(length):
    """Every field of every message claims four billion elements, with and without some that follow."""
    frames = []
    for header, field in FIELDS:
        packed = {k: msgspec.msgpack.encode(v) for k, v in header.items()}
        for rest in (b"", b"\x01" * 1000):
            packed[field] = LENGTHS[length] + rest
            body = b"".join(msgspec.msgpack.encode(k) + v for k, v in packed.items())
            frames.append([bytes([0xDE, 0, len(packed)]) + body])
    for frame in frames:
        survive(frame)  # once before, so that nothing but the message is measured
    tracemalloc.start()
    try:
        for frame in frames:
            survive(frame)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_the_greatest_header_and_payload_cost_a_bounded_amount_of_memory():
    """Header ceiling times a small factor: no message can be worth more to an attacker."""
    wide = [Advance(2**40 + i, 0, 1, 3, p.tokens_of(5), 5, 1) for i in range(p.MAX_BATCH)]
    frames = VERIFIER.encode(p.batch_of(*wide))
    bad = bytes(frames[0]).replace(msgspec.msgpack.encode([1] * p.MAX_BATCH), b"")
    most = [(SERVER, frames), (SERVER, [bad, frames[1]])]
    words = [Answer(i, 0, 0, Outcome.REFUSED, error="x", detail="y" * 20) for i in range(p.MAX_BATCH)]
    most.append((VERIFIER, SERVER.encode(p.answers_of(*words))))
    tracemalloc.start()
    try:
        for codec, message in most:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            try:
                kept = codec.decode(message)
            except WireError:
                kept = None
            peak = tracemalloc.get_traced_memory()[1] - before
            assert peak < 32 * MAX_HEADER
            del kept
    finally:
        tracemalloc.stop()


def test_a_frame_beyond_its_bound_is_refused_without_being_read():
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        frame = memoryview(bytearray(32 << 20))
        held = tracemalloc.get_traced_memory()[0] - before
        for frames in ([frame], [FRAMES[0][0], frame]):
            tracemalloc.reset_peak()
            with pytest.raises(WireError) as caught:
                SERVER.decode(frames)
            assert caught.value.code is Code.TOO_LARGE
            assert tracemalloc.get_traced_memory()[1] - before - held < 1 << 16
    finally:
        tracemalloc.stop()


def test_a_peek_reads_any_message_of_a_stranger():
    assert headers.peek(FRAMES[0]) == headers.Peek("advances", p.SESSION, p.EPOCH)
    assert headers.peek(FRAMES[1]) == headers.Peek("hello", protocol=m.PROTOCOL)
    for frames in ([], [b""], [b"\x80"], [bytes(MAX_HEADER + 1)], [b"\x81\xa1x" + b"\x91" * 100_000]):
        assert headers.peek(frames) is None


@settings(deadline=None)
@given(frames=st.one_of(mutated(), st.lists(st.binary(max_size=50), max_size=2)))
def test_a_peek_never_raises(frames):
    found = headers.peek(frames)
    assert found is None or isinstance(found.type, str)
