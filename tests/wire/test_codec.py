"""What a codec accepts, refuses and says: frames, directions, connections, sessions."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings

from sidedraft.wire import advance_codec, answer_codec, headers
from sidedraft.wire import messages as m
from sidedraft.wire.advance import Advance, Answer, Outcome
from sidedraft.wire.codec import Codec, End
from sidedraft.wire.errors import Code, WireError
from sidedraft.wire.limits import MAX_HEADER
from support import protocol as p

VERIFIER, SERVER = p.codecs()
BEAT = m.Heartbeat(session=p.SESSION, epoch=p.EPOCH, serial=7)
STEP = p.batch_of(Advance(1, 0, 3, 10, p.tokens_of(4, 5), 6, depth=2))


def refused(code: Code, field: str, codec: Codec, frames: list[bytes], **kwargs: bool) -> WireError:
    with pytest.raises(WireError) as caught:
        codec.decode(frames, **kwargs)
    assert (caught.value.code, caught.value.field) == (code, field)
    return caught.value


@settings(deadline=None)
@given(message=p.to_server)
def test_messages_to_the_server_survive_the_wire(message):
    frames = VERIFIER.encode(message)
    assert len(frames) == 1
    assert SERVER.decode(frames) == message


@settings(deadline=None)
@given(message=p.to_verifier)
def test_messages_to_the_verifier_survive_the_wire(message):
    assert VERIFIER.decode(SERVER.encode(message)) == message


@settings(deadline=None)
@given(batch=p.advance_batches)
def test_advances_survive_the_wire(batch):
    decoded = SERVER.decode(VERIFIER.encode(batch))
    assert p.plain(decoded) == p.plain(batch)


@settings(deadline=None)
@given(batch=p.answer_batches)
def test_answers_survive_the_wire(batch):
    assert p.plain(VERIFIER.decode(SERVER.encode(batch))) == p.plain(batch)


def test_decoded_arrays_are_views_of_the_payload_frame():
    rows = np.arange(2 * p.ROW_BYTES, dtype=np.uint8).reshape(2, p.ROW_BYTES)
    header, payload = VERIFIER.encode(p.batch_of(Advance(1, 0, 3, 10, p.tokens_of(4, 5), 6, 2, 10, rows)))
    frame = np.frombuffer(payload, dtype=np.uint8)
    (advance,) = SERVER.decode([header, payload]).advances
    assert np.shares_memory(advance.rows, frame)
    assert np.shares_memory(advance.tokens, frame)


def test_a_payload_packed_into_a_reused_buffer_carries_nothing_of_what_was_there():
    buffer = memoryview(bytearray(b"\xee" * 4096))
    payload = VERIFIER.pack_payload_into(STEP, buffer)
    assert payload.nbytes == VERIFIER.payload_size(STEP) == 64
    assert b"\xee" not in bytes(payload)
    assert payload.obj is buffer.obj
    frames = VERIFIER.encode(STEP, payload=payload)
    assert frames[1] is payload
    assert p.plain(SERVER.decode(frames)) == p.plain(STEP)


def test_a_buffer_that_is_too_small_and_a_payload_of_another_size_are_refused():
    with pytest.raises(WireError, match="64 bytes, expected at most 63 bytes"):
        VERIFIER.pack_payload_into(STEP, memoryview(bytearray(63)))
    with pytest.raises(WireError, match="65 bytes, expected 64 bytes"):
        VERIFIER.encode(STEP, payload=memoryview(bytearray(65)))


def test_a_batch_without_tokens_has_no_payload_frame():
    batch = p.batch_of(Advance(1, 0, 3, 10, p.tokens_of(), 6, depth=2))
    (header,) = VERIFIER.encode(batch)
    assert p.plain(SERVER.decode([header])) == p.plain(batch)


@pytest.mark.parametrize("count", [0, 3])
def test_a_message_is_one_or_two_frames(count):
    refused(Code.MALFORMED, "frames", SERVER, [b"\x80"] * count)


def test_only_batches_have_a_payload():
    (header,) = VERIFIER.encode(BEAT)
    refused(Code.BAD_PAYLOAD, "payload", SERVER, [header, b"1234"])


def test_each_end_understands_only_what_the_other_sends():
    for codec, message in ((VERIFIER, m.Credit(session=p.SESSION, epoch=p.EPOCH, bytes=5)), (SERVER, BEAT)):
        with pytest.raises(WireError) as caught:
            codec.encode(message)
        assert caught.value.code is Code.UNEXPECTED
    refused(Code.UNEXPECTED, "type", VERIFIER, VERIFIER.encode(STEP))
    refused(
        Code.UNEXPECTED, "type", SERVER, SERVER.encode(m.Failure(session=0, epoch=1, code="x", detail=""))
    )
    with pytest.raises(WireError) as caught:
        SERVER.encode(STEP)
    assert caught.value.code is Code.UNEXPECTED


def test_the_bulk_connection_carries_advances_with_a_payload_and_nothing_else():
    frames = VERIFIER.encode(STEP, bulk=True)
    assert p.plain(SERVER.decode(frames, bulk=True)) == p.plain(STEP)
    refused(Code.BAD_PAYLOAD, "payload", SERVER, frames[:1], bulk=True)
    refused(Code.UNEXPECTED, "type", SERVER, [VERIFIER.encode(BEAT)[0], b"x"], bulk=True)
    with pytest.raises(WireError, match="advances, on the bulk connection"):
        VERIFIER.encode(BEAT, bulk=True)


def test_before_a_handshake_there_are_no_batches():
    unknown = Codec(End.SERVER)
    refused(Code.UNKNOWN_SESSION, "session", unknown, VERIFIER.encode(STEP))
    refused(Code.UNKNOWN_SESSION, "session", unknown, VERIFIER.encode(STEP)[:1])
    assert unknown.decode(VERIFIER.encode(BEAT)) == BEAT
    with pytest.raises(WireError) as caught:
        Codec(End.VERIFIER).encode(STEP)
    assert caught.value.code is Code.UNKNOWN_SESSION


@pytest.mark.parametrize("field", ["session", "epoch"])
def test_a_message_of_another_session_or_epoch_is_stale(field):
    stale = {"session": p.SESSION, "epoch": p.EPOCH, field: 1}
    (frame,) = Codec(End.VERIFIER).encode(m.Heartbeat(serial=7, **stale))
    error = refused(Code.STALE_SESSION, field, SERVER, [frame])
    assert error.value == "1"
    batch = p.batch_of(*STEP.advances)
    setattr(batch, field, 1)
    with pytest.raises(WireError) as caught:
        VERIFIER.encode(batch)
    assert caught.value.code is Code.STALE_SESSION


def test_a_failure_about_any_session_reaches_the_verifier():
    failure = m.Failure(session=0, epoch=5, code=Code.UNKNOWN_SESSION, detail="say hello", fatal=True)
    assert VERIFIER.decode(Codec(End.SERVER).encode(failure)) == failure


def test_a_header_is_bounded_before_it_is_read():
    error = refused(Code.TOO_LARGE, "header", SERVER, [bytes(MAX_HEADER + 1)])
    assert error.value == f"{MAX_HEADER + 1} bytes"


def test_a_header_may_have_exactly_as_many_bytes_as_its_bound():
    head = answer_codec.header(p.answers_of(Answer(1, 0, 0, Outcome.REFUSED, error="gap")))
    most = MAX_HEADER - len(headers.encode(msgspec.structs.replace(head, detail=["x" * 65536]))) + 65536
    frame = headers.encode(msgspec.structs.replace(head, detail=["x" * most]))
    assert len(frame) == MAX_HEADER
    decoded = VERIFIER.decode([frame])
    assert [e.field for e in decoded.refused] == ["detail"]
    with pytest.raises(WireError) as caught:
        headers.encode(msgspec.structs.replace(head, detail=["x" * (most + 1)]))
    assert (caught.value.code, caught.value.field) == (Code.TOO_LARGE, "header")


@pytest.mark.parametrize(("bulk", "most"), [(False, p.LIMITS.control_payload), (True, p.LIMITS.bulk_payload)])
def test_a_payload_is_bounded_by_its_connection(bulk, most):
    header, _payload = VERIFIER.encode(STEP)
    error = refused(Code.TOO_LARGE, "payload", SERVER, [header, bytes(most + 1)], bulk=bulk)
    assert f"{most} bytes" in error.expected
    decoded = SERVER.decode([header, bytes(most)], bulk=bulk)
    assert [e.code for e in decoded.refused] == [Code.BAD_PAYLOAD]


@pytest.mark.parametrize(("bulk", "rows"), [(False, 2046), (True, 8190)])
def test_a_sender_stays_inside_the_bounds_of_its_peer(bulk, rows):
    most = p.LIMITS.bulk_payload if bulk else p.LIMITS.control_payload
    for count, fits in ((rows, True), (rows + 3, False)):
        payload = np.zeros((count, p.ROW_BYTES), dtype=np.uint8)
        # One token of padding to 64 bytes, then rows: the rule that rows need tokens is the receiver's.
        batch = p.batch_of(Advance(1, 0, 3, 10, p.tokens_of(4), 6, 2, 10, payload))
        assert (VERIFIER.payload_size(batch) <= most) is fits
        if fits:
            assert sum(len(f) for f in VERIFIER.encode(batch, bulk=bulk)[1:]) <= most
        else:
            with pytest.raises(WireError) as caught:
                VERIFIER.encode(batch, bulk=bulk)
            assert caught.value.code is Code.TOO_LARGE


def test_the_worst_batch_of_refusals_can_always_be_sent_though_without_its_words():
    most = p.MAX_ID
    longest = max((code.value for code in Code), key=len)
    refusals = [
        Answer(
            most - i,
            most,
            most,
            Outcome.REFUSED,
            committed=p.MAX_POSITION,
            rows_present=p.MAX_POSITION // 2,
            context_start=p.MAX_POSITION // 2,
            error=longest,
            detail="w" * 300,
        )
        for i in range(p.LIMITS.batch)
    ]
    decoded = VERIFIER.decode(SERVER.encode(p.answers_of(*refusals)))
    assert [a.error for a in decoded.answers] == [longest] * p.LIMITS.batch
    assert {a.detail for a in decoded.answers} == {""}
    few = VERIFIER.decode(SERVER.encode(p.answers_of(*refusals[:100])))
    assert {a.detail for a in few.answers} == {"w" * 300}


def test_advances_that_do_not_fit_into_a_header_are_the_senders_to_divide():
    advances = [Advance(p.MAX_ID - i, p.MAX_ID, p.MAX_ID, 0, p.tokens_of(), 0) for i in range(p.MAX_BATCH)]
    for advance in advances:
        advance.opening = p.Opening(context_key=bytes(64))
    with pytest.raises(WireError) as caught:
        VERIFIER.encode(p.batch_of(*advances))
    assert (caught.value.code, caught.value.field) == (Code.TOO_LARGE, "header")


@pytest.mark.parametrize("count", [0, 5])
def test_a_batch_has_at_least_one_row_and_at_most_as_many_as_agreed(count):
    limits = msgspec.structs.replace(p.LIMITS, batch=4)
    agreed = p.agreement(facts=p.facts(limits=limits))
    verifier, server = p.codecs(agreed)
    batch = p.batch_of(*[Advance(i, 0, 3, 10, p.tokens_of(), 6) for i in range(count)])
    with pytest.raises(WireError) as caught:
        verifier.encode(batch)
    assert caught.value.code is Code.TOO_LARGE
    header = headers.encode(advance_codec.header(batch))
    refused(Code.TOO_LARGE if count else Code.MALFORMED, "request", server, [header])
