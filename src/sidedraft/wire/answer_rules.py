"""The rules on an answer, as columns of a batch. What they say stands in docs/protocol.md."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sidedraft.wire.advance import Outcome
from sidedraft.wire.agreement import Agreement
from sidedraft.wire.batch import Answers
from sidedraft.wire.checks import IDS, Columns, Passed, Range, RowErrors
from sidedraft.wire.limits import MAX_DETAIL, MAX_NAME, MAX_PAYLOAD, MAX_POSITION
from sidedraft.wire.payload import Layout


def columns_of(head: Answers) -> Columns:
    """The integer columns."""
    return Columns(
        {
            "request": head.request,
            "generation": head.generation,
            "number": head.number,
            "outcome": head.outcome,
            "committed": head.committed,
            "context_start": head.context_start,
            "rows_present": head.rows_present,
            "count": head.count,
        }
    )


def layout(columns: Columns, confident: Passed) -> Layout | None:
    """The payload's parts; None when a count is beyond any payload, so that sums cannot overflow."""
    count = columns["count"]
    if count.min() < 0 or count.max() > MAX_PAYLOAD:
        return None
    return Layout(int(count.sum()), 4 * int(count[confident].sum()))


def check(
    errors: RowErrors, head: Answers, columns: Columns, confident: Passed, agreement: Agreement
) -> None:
    """Every rule but those on the values in the payload."""
    errors.require_ranges(_ranges(agreement))
    _check_progress(errors, columns)
    _check_outcome(errors, head, columns)
    if not agreement.confidence:
        errors.require(~confident, "confident", head.confident, "False, as none were agreed")


def _ranges(agreement: Agreement) -> Mapping[str, Range]:
    position = Range(0, MAX_POSITION)
    return {
        **IDS,
        "outcome": Range(0, max(Outcome)),
        "committed": position,
        "context_start": position,
        "rows_present": position,
        "count": Range(0, agreement.max_depth),
    }


def _check_progress(errors: RowErrors, columns: Columns) -> None:
    """Relations between the committed end and the context."""
    committed, start = columns["committed"], columns["context_start"]
    values = columns.lists
    errors.require(
        start <= committed,
        "context_start",
        values["context_start"],
        lambda i: f"at most {values['committed'][i]}, the committed end",
    )
    errors.require(
        columns["rows_present"] <= committed - start,
        "rows_present",
        values["rows_present"],
        lambda i: f"at most {values['committed'][i] - values['context_start'][i]}, from context_start on",
    )


def _check_outcome(errors: RowErrors, head: Answers, columns: Columns) -> None:
    """What an outcome carries: a draft, an error, or neither."""
    drafted = columns["outcome"] == Outcome.DRAFTED
    errors.require(
        drafted == (columns["count"] > 0),
        "count",
        head.count,
        lambda i: "at least 1 draft token" if drafted[i] else f"0 with outcome {head.outcome[i]}",
    )
    refused = columns["outcome"] == Outcome.REFUSED
    coded = np.array([0 < len(e) <= MAX_NAME and e.isprintable() for e in head.error], dtype=np.bool_)
    silent = np.array([not e for e in head.error], dtype=np.bool_)
    errors.require(
        np.where(refused, coded, silent),
        "error",
        head.error,
        lambda i: f"a code of 1 to {MAX_NAME} characters" if refused[i] else "nothing, unless refused",
    )
    worded = np.array([len(d) <= MAX_DETAIL and d.isprintable() for d in head.detail], dtype=np.bool_)
    errors.require(worded, "detail", head.detail, f"at most {MAX_DETAIL} printable characters")
