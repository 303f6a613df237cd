"""Each rule on an answer: what breaks it, what the error says, and that nobody else is harmed."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from sidedraft.wire import answer_codec, headers
from sidedraft.wire.advance import Answer, Outcome
from sidedraft.wire.batch import Timings, refusal
from sidedraft.wire.errors import Code, WireError
from support import protocol as p

VERIFIER, SERVER = p.codecs()


def drafted(**changes: Any) -> Answer:
    fields: dict[str, Any] = {
        "request": 5,
        "generation": 1,
        "number": 9,
        "outcome": Outcome.DRAFTED,
        "committed": 13,
        "rows_present": 10,
        "context_start": 2,
        "tokens": p.tokens_of(1, 2),
        "confidence": np.array([0.5, 0.25], dtype=np.float32),
    }
    return Answer(**{**fields, **changes})


def ingested(**changes: Any) -> Answer:
    return drafted(**{"outcome": Outcome.INGESTED, "tokens": p.tokens_of(), "confidence": None, **changes})


def sure(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


BROKEN: list[tuple[Answer, Code, str, str, str]] = [
    (drafted(tokens=p.tokens_of(1, 97)), Code.BAD_TOKEN, "tokens", "97", "0 to 96"),
    (drafted(tokens=p.tokens_of(-1, 2)), Code.BAD_TOKEN, "tokens", "-1", "0 to 96"),
    (drafted(tokens=p.tokens_of(2**31 - 1, 2)), Code.BAD_TOKEN, "tokens", "2147483647", "0 to 96"),
    (drafted(tokens=p.tokens_of(*[1] * 5), confidence=None), Code.BAD_FIELD, "count", "5", "0 to 4"),
    (drafted(tokens=p.tokens_of(), confidence=None), Code.BAD_FIELD, "count", "0", "at least 1 draft token"),
    (ingested(tokens=p.tokens_of(1)), Code.BAD_FIELD, "count", "1", "0 with outcome 0"),
    (drafted(confidence=sure(0.5, 1.5)), Code.BAD_FIELD, "confidence", "1.5", "0 to 1"),
    (drafted(confidence=sure(-0.5, 0.5)), Code.BAD_FIELD, "confidence", "-0.5", "0 to 1"),
    (drafted(confidence=sure(0.5, np.nan)), Code.BAD_FIELD, "confidence", "nan", "0 to 1"),
    (ingested(committed=-1), Code.BAD_FIELD, "committed", "-1", "0 to 2147483647"),
    (ingested(committed=2**31), Code.BAD_FIELD, "committed", "2147483648", "0 to 2147483647"),
    (ingested(context_start=14), Code.BAD_FIELD, "context_start", "14", "at most 13, the committed end"),
    (ingested(context_start=-1), Code.BAD_FIELD, "context_start", "-1", "0 to 2147483647"),
    (ingested(rows_present=12), Code.BAD_FIELD, "rows_present", "12", "at most 11, from context_start on"),
    (ingested(rows_present=-1), Code.BAD_FIELD, "rows_present", "-1", "0 to 2147483647"),
    (ingested(error="gap"), Code.BAD_FIELD, "error", "gap", "nothing, unless refused"),
    (ingested(outcome=Outcome.REFUSED), Code.BAD_FIELD, "error", "", "a code of 1 to 64 characters"),
    (
        ingested(outcome=Outcome.REFUSED, error="x" * 65),
        Code.BAD_FIELD,
        "error",
        "xxx",
        "a code of 1 to 64 characters",
    ),
    (ingested(request=-1), Code.BAD_FIELD, "request", "-1", "0 to 9223372036854775807"),
]


@pytest.mark.parametrize(("bad", "code", "field", "value", "expected"), BROKEN)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_broken_rule_refuses_its_own_answer_only(place, bad, code, field, value, expected):
    good = [drafted(request=6), ingested(request=7)]
    decoded = VERIFIER.decode(SERVER.encode(p.answers_of(*good[:place], bad, *good[place:])))
    assert p.plain(decoded.answers) == p.plain(good)
    (error,) = decoded.refused
    assert (error.code, error.field, error.expected) == (code, field, expected)
    assert error.value.startswith(value)
    assert error.request == (None if field == "request" else 5)


def altered(column: str, value: Any, payload: bytes | None = None) -> list[bytes]:
    """Frames of two answers, the first with another value in one column."""
    batch = p.answers_of(ingested(), ingested(request=6))
    head = answer_codec.header(batch)
    values = [value, *getattr(head, column)[1:]]
    frames = [headers.encode(msgspec.structs.replace(head, **{column: values}))]
    return frames if payload is None else [*frames, payload]


@pytest.mark.parametrize("outcome", [-1, max(Outcome) + 1])
def test_an_unknown_outcome_refuses_its_answer(outcome):
    decoded = VERIFIER.decode(altered("outcome", outcome))
    assert [a.request for a in decoded.answers] == [6]
    assert [(e.field, e.value) for e in decoded.refused] == [("outcome", str(outcome))]


@pytest.mark.parametrize("detail", ["x" * 513, "line\nbreak", "\x1b[31m"])
def test_words_that_could_confuse_a_log_refuse_their_answer(detail):
    decoded = VERIFIER.decode(altered("detail", detail))
    assert [a.request for a in decoded.answers] == [6]
    assert [e.field for e in decoded.refused] == ["detail"]


def test_a_sender_makes_its_words_fit():
    answer = ingested(outcome=Outcome.REFUSED, error="gap", detail="a\nb" + "x" * 600)
    (received,) = VERIFIER.decode(SERVER.encode(p.answers_of(answer))).answers
    assert received.detail.startswith("a�bxxx")
    assert len(received.detail) == 512


@pytest.mark.parametrize("count", [-1, 2**40, 2**64 - 1])
def test_counts_that_would_overflow_any_sum_are_refused_before_they_are_used(count):
    decoded = VERIFIER.decode(altered("count", count, bytes(64)))
    assert [e.code for e in decoded.refused] == [Code.BAD_PAYLOAD] * 2


def test_a_payload_that_does_not_add_up_refuses_every_answer_by_name():
    header, payload = SERVER.encode(p.answers_of(drafted(), drafted(request=6)))
    decoded = VERIFIER.decode([header, bytes(payload)[:-4]])
    assert decoded.answers == []
    assert [(e.code, e.request) for e in decoded.refused] == [(Code.BAD_PAYLOAD, 5), (Code.BAD_PAYLOAD, 6)]


def test_confidences_that_were_not_agreed_are_refused():
    verifier, server = p.codecs(p.agreement(facts=p.facts(confidence=False)))
    decoded = verifier.decode(server.encode(p.answers_of(drafted(), drafted(request=6, confidence=None))))
    assert [a.request for a in decoded.answers] == [6]
    assert [e.field for e in decoded.refused] == ["confident"]


@pytest.mark.parametrize(
    ("answer", "field"),
    [
        (drafted(tokens=np.zeros(2, dtype=np.int64)), "tokens"),
        (drafted(confidence=np.zeros(2, dtype=np.float64)), "confidence"),
        (drafted(confidence=sure(0.5)), "confidence"),
    ],
)
def test_a_sender_cannot_pack_arrays_of_another_form(answer, field):
    with pytest.raises(WireError) as caught:
        SERVER.encode(p.answers_of(answer))
    assert (caught.value.field, caught.value.request) == (field, 5)


@pytest.mark.parametrize("field", Timings.__struct_fields__)
def test_timings_are_bounded(field):
    with pytest.raises(WireError) as caught:
        SERVER.encode(p.answers_of(ingested(), timings=Timings(**{field: -1})))
    assert caught.value.field == f"answers.timings.{field}"


def test_a_refused_advance_becomes_an_answer_that_says_why():
    error = WireError(Code.BAD_TOKEN, "tokens", 97, "0 to 96", request=5, generation=1, number=9)
    answer = refusal(error)
    assert answer is not None
    (received,) = VERIFIER.decode(SERVER.encode(p.answers_of(answer))).answers
    assert (received.request, received.number, received.outcome) == (5, 9, Outcome.REFUSED)
    assert (received.error, received.detail) == ("bad_token", "tokens is 97, expected 0 to 96")
    assert refusal(WireError(Code.BAD_FIELD, "request", -1, "0 or more")) is None
