"""The rules on an advance, as columns of a batch. What they say stands in docs/protocol.md."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from sidedraft.wire.advance import MAX_CONTEXT_KEY
from sidedraft.wire.agreement import Agreement
from sidedraft.wire.batch import Advances
from sidedraft.wire.checks import IDS, Columns, Range, RowErrors
from sidedraft.wire.errors import Code
from sidedraft.wire.limits import MAX_PAYLOAD
from sidedraft.wire.payload import Layout


def columns_of(head: Advances) -> Columns:
    """The integer columns, those of the openings included."""
    return Columns(
        {
            "request": head.request,
            "generation": head.generation,
            "number": head.number,
            "first": head.first,
            "count": head.count,
            "next_token": head.next_token,
            "depth": head.depth,
            "rows_at": head.rows_at,
            "rows": head.rows,
            "prefix": [0 if o is None else o.prefix for o in head.opening],
        }
    )


def check(errors: RowErrors, head: Advances, columns: Columns, agreement: Agreement) -> None:
    """Every rule but those on the values in the payload."""
    errors.require_ranges(_ranges(agreement))
    _check_sizes(errors, columns, agreement.max_position)
    _check_openings(errors, head, columns)


def _ranges(agreement: Agreement) -> Mapping[str, Range]:
    position = Range(0, agreement.max_position)
    return {
        **IDS,
        "first": position,
        "count": position,
        "next_token": Range(0, agreement.vocab_size - 1, Code.BAD_TOKEN),
        "depth": Range(0, agreement.max_depth),
        "rows_at": position,
        "rows": Range(0, agreement.max_position, Code.BAD_ROWS),
        "prefix": Range(0, agreement.max_position, Code.BAD_OPENING),
    }


def layout(columns: Columns, row_bytes: int) -> Layout | None:
    """The payload's parts; None when a count is beyond any payload, so that sums cannot overflow."""
    count, prefix, rows = columns["count"], columns["prefix"], columns["rows"]
    for counted in (count, prefix, rows):
        if counted.min() < 0 or counted.max() > MAX_PAYLOAD:
            return None
    return Layout(int(count.sum()) + int(prefix.sum()), int(rows.sum()) * row_bytes)


def _check_sizes(errors: RowErrors, columns: Columns, last: int) -> None:
    """Relations between first, count and the rows; differences cannot overflow where the ranges hold."""
    first, count = columns["first"], columns["count"]
    rows, lead = columns["rows"], columns["rows_at"] - first
    values = columns.lists
    errors.require(
        count <= last - first,
        "count",
        values["count"],
        lambda i: f"at most {last - values['first'][i]}, from position {values['first'][i]} to {last}",
    )
    errors.require(
        rows <= count,
        "rows",
        values["rows"],
        lambda i: f"at most {values['count'][i]}, as many as tokens",
        Code.BAD_ROWS,
    )
    errors.require(
        (rows == 0) | (lead >= 0) & (lead <= count - rows),
        "rows_at",
        values["rows_at"],
        lambda i: f"{values['first'][i]} to {values['first'][i] + values['count'][i] - values['rows'][i]}",
        Code.BAD_ROWS,
    )


def _check_openings(errors: RowErrors, head: Advances, columns: Columns) -> None:
    opened = np.array([o is not None for o in head.opening], dtype=np.bool_)
    errors.require(
        opened == (columns["number"] == 0),
        "opening",
        ["absent" if o is None else "present" for o in head.opening],
        lambda i: f"{'present' if head.number[i] == 0 else 'absent'} at number {head.number[i]}",
        Code.BAD_OPENING,
    )
    if not opened.any():
        return
    errors.require(
        ~opened | (columns["prefix"] == columns["first"]),
        "prefix",
        columns.lists["prefix"],
        lambda i: f"{head.first[i]} tokens, as many as first",
        Code.BAD_OPENING,
    )
    lengths = [0 if o is None else len(o.context_key) for o in head.opening]
    errors.require(
        np.array([length <= MAX_CONTEXT_KEY for length in lengths], dtype=np.bool_),
        "context_key",
        [f"{length} bytes" for length in lengths],
        f"at most {MAX_CONTEXT_KEY} bytes",
        Code.BAD_OPENING,
    )
