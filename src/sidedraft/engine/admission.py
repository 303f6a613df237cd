"""What a work has to be before it may touch a request."""

from __future__ import annotations

from sidedraft.drafts.base import DraftShape
from sidedraft.engine.plan import MemoryPlan
from sidedraft.engine.work import Change, Work
from sidedraft.wire.errors import Code, WireError
from sidedraft.wire.rows import KINDS, Projection, RowFormat, find_format


def check_format(work: Work, projection: Projection | None) -> RowFormat:
    """The format of a work's rows; `projection` is the draft's own. Raises `WireError` for another's."""
    found = find_format(work.row_format)
    if found is None or found.projection not in (None, projection):
        expected = f"one of {', '.join(KINDS)}, of this draft's projection"
        raise WireError(Code.BAD_FIELD, "row_format", work.row_format, expected)
    return found


def check_work(work: Work, shape: DraftShape, plan: MemoryPlan, projection: Projection | None) -> Change:
    """The change that the work makes to its request's tokens.

    Raises `WireError`: the work's own refusal, or a field that the engine cannot use.
    """
    advance, rows = work.advance, work.advance.rows
    if work.refusal is not None:
        raise work.refusal
    if work.change is None:
        raise WireError(Code.INTERNAL, "change", None, "a work that a Sequencer released")
    if not 0 <= advance.depth <= plan.max_depth:
        raise WireError(Code.BAD_FIELD, "depth", advance.depth, f"0 to {plan.max_depth}")
    if not 0 <= advance.next_token < shape.vocab_size:
        expected = f"a token id in [0, {shape.vocab_size})"
        raise WireError(Code.BAD_TOKEN, "next_token", advance.next_token, expected)
    if rows is not None:
        width = check_format(work, projection).row_bytes(shape.row_width)
        if rows.ndim != 2 or rows.shape[1] != width:
            raise WireError(Code.BAD_ROWS, "rows", rows.shape, f"rows of {width} bytes")
        if not advance.first <= advance.rows_at <= advance.end - len(rows):
            expected = f"{len(rows)} rows inside [{advance.first}, {advance.end})"
            raise WireError(Code.BAD_ROWS, "rows_at", advance.rows_at, expected)
    return work.change
