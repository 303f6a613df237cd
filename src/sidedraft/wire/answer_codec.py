"""An `AnswerBatch` as header and payload, and back. Its rules stand in `wire.answer_rules`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sidedraft.wire import answer_rules as rules
from sidedraft.wire.advance import Answer, Outcome
from sidedraft.wire.agreement import Agreement
from sidedraft.wire.batch import AnswerBatch, Answers
from sidedraft.wire.checks import RowErrors, same_length
from sidedraft.wire.errors import Code, WireError, shorten
from sidedraft.wire.limits import MAX_DETAIL
from sidedraft.wire.payload import Layout, expected_size, offsets


def layout(batch: AnswerBatch) -> Layout:
    """Where the payload's parts stand."""
    tokens = sum(len(a.tokens) for a in batch.answers)
    confidences = sum(len(a.tokens) for a in batch.answers if a.confidence is not None)
    return Layout(tokens, 4 * confidences)


def header(batch: AnswerBatch, *, details: bool = True) -> Answers:
    """The scalars of a batch as columns. Without `details` the worst batch fits into a header frame."""
    answers = batch.answers
    return Answers(
        session=batch.session,
        epoch=batch.epoch,
        serial=batch.serial,
        timings=batch.timings,
        request=[a.request for a in answers],
        generation=[a.generation for a in answers],
        number=[a.number for a in answers],
        outcome=[int(a.outcome) for a in answers],
        committed=[a.committed for a in answers],
        rows_present=[a.rows_present for a in answers],
        context_start=[a.context_start for a in answers],
        count=[len(a.tokens) for a in answers],
        confident=[a.confidence is not None for a in answers],
        error=[a.error for a in answers],
        detail=[shorten(a.detail, MAX_DETAIL) if details else "" for a in answers],
    )


def pack(batch: AnswerBatch, buffer: memoryview) -> memoryview:
    """Draft tokens and confidences into a buffer of at least `layout(...).size` bytes; returns the part used.

    Raises:
        WireError: tokens are not int32 [k], or confidences not float32 [k].
    """
    tokens: list[npt.NDArray[np.int32]] = []
    confidences: list[npt.NDArray[np.float32]] = []
    for answer in batch.answers:
        own, confidence = answer.tokens, answer.confidence
        if own.dtype != np.int32 or own.ndim != 1:
            raise _misshapen("tokens", own, "int32 [k]", answer)
        tokens.append(own)
        if confidence is not None:
            if confidence.dtype != np.float32 or confidence.shape != own.shape:
                raise _misshapen("confidence", confidence, f"float32 [{len(own)}]", answer)
            confidences.append(confidence)
    return layout(batch).pack(buffer, tokens, confidences)


def decode(head: Answers, payload: memoryview, agreement: Agreement) -> AnswerBatch:
    """Check every answer and give views of the payload, without copying it.

    An answer that breaks a rule is left out and stands in `refused`; all do when the payload does not have
    the size that the header adds up to.

    Raises:
        WireError: the columns differ in length, or hold none or too many answers.
    """
    same_length(head, agreement.limits.batch)
    batch = AnswerBatch(head.session, head.epoch, head.serial, [], head.timings)
    columns = rules.columns_of(head)
    errors = RowErrors(columns)
    confident = np.array(head.confident, dtype=np.bool_)
    parts = rules.layout(columns, confident)
    if parts is None or parts.size != len(payload):
        errors.refuse_all(Code.BAD_PAYLOAD, "payload", f"{len(payload)} bytes", expected_size(parts))
        batch.refused = errors.in_order()
        return batch

    rules.check(errors, head, columns, confident, agreement)
    tokens, tail = parts.split(payload)
    token_at = offsets(columns["count"])
    vocab = agreement.vocab_size
    errors.require_values(
        tokens.view(np.uint32) < vocab,  # as unsigned, negative ids are huge
        "tokens",
        tokens,
        token_at,
        f"0 to {vocab - 1}",
        Code.BAD_TOKEN,
    )
    confidences = np.frombuffer(tail, dtype=np.float32)
    confidence_at = offsets(np.where(confident, columns["count"], 0))
    probable = (confidences >= 0) & (confidences <= 1)  # so NaN is refused as well
    errors.require_values(probable, "confidence", confidences, confidence_at, "0 to 1")
    batch.refused = errors.in_order()
    token_bounds, confidence_bounds = token_at.tolist(), confidence_at.tolist()
    for i in range(len(head.request)):
        if i not in errors:
            own = tokens[token_bounds[i] : token_bounds[i + 1]]
            confidence = confidences[confidence_bounds[i] : confidence_bounds[i + 1]]
            batch.answers.append(_answer(head, i, own, confidence if head.confident[i] else None))
    return batch


def _answer(
    head: Answers, i: int, tokens: npt.NDArray[np.int32], confidence: npt.NDArray[np.float32] | None
) -> Answer:
    return Answer(
        request=head.request[i],
        generation=head.generation[i],
        number=head.number[i],
        outcome=Outcome(head.outcome[i]),
        committed=head.committed[i],
        rows_present=head.rows_present[i],
        context_start=head.context_start[i],
        tokens=tokens,
        confidence=confidence,
        error=head.error[i],
        detail=head.detail[i],
    )


def _misshapen(field: str, value: npt.NDArray[np.generic], expected: str, answer: Answer) -> WireError:
    ids = {"request": answer.request, "generation": answer.generation, "number": answer.number}
    return WireError(Code.BAD_FIELD, field, f"{value.dtype} {list(value.shape)}", expected, **ids)
