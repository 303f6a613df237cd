"""An `AnswerBatch` as header and payload, and back. Every rule on an answer stands in `decode`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sidedraft.wire.advance import Answer, Outcome
from sidedraft.wire.agreement import Agreement
from sidedraft.wire.batch import AnswerBatch, Answers
from sidedraft.wire.checks import Column, RowErrors, column, in_range, same_length
from sidedraft.wire.errors import Code, WireError, shorten
from sidedraft.wire.limits import MAX_DETAIL, MAX_NAME, MAX_POSITION
from sidedraft.wire.payload import Layout, offsets


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
            raise _local("tokens", own, "int32 [k]", answer)
        tokens.append(own)
        if confidence is not None:
            if confidence.dtype != np.float32 or confidence.shape != own.shape:
                raise _local("confidence", confidence, f"float32 [{len(own)}]", answer)
            confidences.append(confidence)
    return layout(batch).pack(buffer, tokens, confidences)


def decode(head: Answers, payload: memoryview, agreement: Agreement) -> AnswerBatch:
    """Check every answer and give views of the payload, without copying it.

    An answer that breaks a rule is left out and stands in `refused`; all do when the payload does not have
    the size that the header adds up to.

    Raises:
        WireError: the columns differ in length, or hold none or too many answers.
    """
    n = same_length(head, agreement.limits.batch)
    batch = AnswerBatch(head.session, head.epoch, head.serial, [], head.timings)
    errors = RowErrors(head.request, head.generation, head.number)
    counts = column(head.count)
    confident = np.array(head.confident, dtype=np.bool_)
    sizes_known = bool(in_range(counts, 0, agreement.max_depth).all())
    parts = Layout(int(counts.sum()), 4 * int(counts[confident].sum())) if sizes_known else None
    if parts is None or parts.size != len(payload):
        expected = "counts within bounds" if parts is None else f"{parts.size} bytes, by its header"
        errors.refuse_all(n, Code.BAD_PAYLOAD, "payload", f"{len(payload)} bytes", expected)
        batch.refused = errors.in_order()
        return batch

    _check_scalars(errors, head, counts)
    tokens, tail = parts.split(payload)
    confidences = np.frombuffer(tail, dtype=np.float32)
    token_at = offsets(counts)
    confidence_at = offsets(np.where(confident, counts, 0))
    errors.require_values(
        tokens.view(np.uint32) < agreement.vocab_size,
        "tokens",
        tokens,
        token_at,
        f"0 to {agreement.vocab_size - 1}",
        Code.BAD_TOKEN,
    )
    errors.require_values(
        (confidences >= 0) & (confidences <= 1), "confidence", confidences, confidence_at, "0 to 1"
    )
    batch.refused = errors.in_order()
    for i in range(n):
        if i in errors:
            continue
        batch.answers.append(
            Answer(
                request=head.request[i],
                generation=head.generation[i],
                number=head.number[i],
                outcome=Outcome(head.outcome[i]),
                committed=head.committed[i],
                rows_present=head.rows_present[i],
                context_start=head.context_start[i],
                tokens=tokens[token_at[i] : token_at[i + 1]],
                confidence=(
                    confidences[confidence_at[i] : confidence_at[i + 1]] if head.confident[i] else None
                ),
                error=head.error[i],
                detail=head.detail[i],
            )
        )
    return batch


def _check_scalars(errors: RowErrors, head: Answers, counts: Column) -> None:
    outcome, committed = column(head.outcome), column(head.committed)
    start, present = column(head.context_start), column(head.rows_present)
    errors.require(in_range(outcome, 0, max(Outcome)), "outcome", head.outcome, f"0 to {max(Outcome):d}")
    errors.require(in_range(committed, 0, MAX_POSITION), "committed", head.committed, f"0 to {MAX_POSITION}")
    errors.require(
        in_range(start, 0, MAX_POSITION) & (start <= committed),
        "context_start",
        head.context_start,
        lambda i: f"0 to {head.committed[i]}, the committed end",
    )
    errors.require(
        (present >= 0) & (present <= committed - start),
        "rows_present",
        head.rows_present,
        lambda i: f"0 to {head.committed[i] - head.context_start[i]}, the rows from context_start",
    )
    drafted = outcome == Outcome.DRAFTED
    errors.require(
        drafted == (counts > 0),
        "count",
        head.count,
        lambda i: "at least 1 draft token" if drafted[i] else f"0 with outcome {head.outcome[i]}",
    )
    refused = outcome == Outcome.REFUSED
    named = np.array([0 < len(error) <= MAX_NAME for error in head.error], dtype=np.bool_)
    empty = np.array([not error for error in head.error], dtype=np.bool_)
    errors.require(
        np.where(refused, named, empty),
        "error",
        head.error,
        lambda i: f"a code of at most {MAX_NAME} characters" if refused[i] else "empty unless refused",
    )
    short = np.array([len(d) <= MAX_DETAIL and d.isprintable() for d in head.detail], dtype=np.bool_)
    errors.require(short, "detail", head.detail, f"at most {MAX_DETAIL} printable characters")


def _local(field: str, value: npt.NDArray[np.generic], expected: str, answer: Answer) -> WireError:
    ids = {"request": answer.request, "generation": answer.generation, "number": answer.number}
    return WireError(Code.BAD_FIELD, field, f"{value.dtype} {list(value.shape)}", expected, **ids)
