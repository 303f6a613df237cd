"""What an engine states of one request each step, and the check it goes through.

A wrong submission is the caller's mistake, not a remote fault, and raises before anything has changed.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from torch import Tensor

from sidedraft.verifier.state.entry import Entry, SubmissionError
from sidedraft.verifier.state.outcome import Draft, NoDraft, Reason
from sidedraft.wire.advance import MAX_CONTEXT_KEY, Tokens

__all__ = ["Draft", "NoDraft", "Reason", "Rows", "Submission", "SubmissionError", "check"]

TokenIds = Sequence[int] | npt.NDArray[np.integer] | Tensor
Rows = Tensor | npt.NDArray[np.floating]


@dataclass(slots=True, eq=False)
class Submission:
    """One request's accepted progress since the last submission, and the draft wanted now."""

    request: Hashable
    """Names the request; the same object, or an equal one, in every step until `release`."""
    first: int
    """Absolute position of the first token. Lower than before: the request is rewound to it."""
    tokens: TokenIds = field(default_factory=list)
    """Accepted tokens at `[first, first + n)`, complete; n may be 0."""
    next_token: int = 0
    """The token at `first + n`: the last sampled one, or the next one inside a prompt."""
    depth: int = 0
    """Draft tokens wanted; 0 only reports progress."""
    rows: Rows | None = None
    """Aux states of positions `[rows_at, rows_at + r)`, floating point [r, taps x hidden size], taps in
    ascending order, on any device. May be reused once `submit` has returned."""
    rows_at: int | None = None
    """Position of the first row; None: `first`."""
    prefix: TokenIds | None = None
    """Tokens `[0, first)`; needed in a request's first submission when `first > 0`, ignored later."""
    context_key: bytes = b""
    """At most 64 bytes digesting what else the context depends on: adapter, images, tenant. Read once."""
    private: bool = False
    """True when tokens do not determine the context (prompt embeddings): shared with nobody. Read once."""
    horizon: int | None = None
    """Prefix length at which the first draft will be wanted: rows that the draft cannot see from there stay
    here. None: as soon as the tokens end."""


def check(one: Submission, *, row_width: int, vocab_size: int) -> Entry:
    """The submission as the state machine takes it.

    Raises:
        SubmissionError: naming the field, its value and what was expected.
    """

    def fail(name: str, value: object, expected: str) -> SubmissionError:
        return SubmissionError(one.request, name, value, expected)

    first = _whole(one, "first", one.first)
    tokens = _tokens(one, "tokens", one.tokens, vocab_size)
    depth = _whole(one, "depth", one.depth)
    next_token = _whole(one, "next_token", one.next_token)
    if next_token >= vocab_size:
        raise fail("next_token", next_token, f"a token id below {vocab_size}")
    prefix = None if one.prefix is None else _tokens(one, "prefix", one.prefix, vocab_size)
    if prefix is not None and len(prefix) != first:
        raise fail("prefix", f"{len(prefix)} tokens", f"the {first} tokens before `first`")
    if len(one.context_key) > MAX_CONTEXT_KEY:
        raise fail("context_key", f"{len(one.context_key)} bytes", f"at most {MAX_CONTEXT_KEY} bytes")
    rows_at = first if one.rows_at is None else _whole(one, "rows_at", one.rows_at)
    row_count = 0
    if one.rows is None:
        rows_at = first
    else:
        shape = tuple(one.rows.shape)
        if len(shape) != 2 or shape[1] != row_width:
            raise fail("rows", f"of shape {shape}", f"[rows, {row_width}]")
        if not _floating(one.rows):
            raise fail("rows", f"of dtype {one.rows.dtype}", "a floating point dtype")
        row_count = shape[0]
        if rows_at < first or rows_at + row_count > first + len(tokens):
            raise fail(
                "rows", f"at [{rows_at}, {rows_at + row_count})", f"within [{first}, {first + len(tokens)})"
            )
    return Entry(
        key=one.request,
        first=first,
        tokens=tokens,
        next_token=next_token,
        depth=depth,
        rows_at=rows_at,
        row_count=row_count,
        horizon=0 if one.horizon is None else _whole(one, "horizon", one.horizon),
        prefix=prefix,
        context_key=bytes(one.context_key),
        private=bool(one.private),
    )


def _whole(one: Submission, name: str, value: int) -> int:
    number = int(value)
    if number < 0:
        raise SubmissionError(one.request, name, value, "0 or more")
    return number


def _tokens(one: Submission, name: str, value: TokenIds, vocab_size: int) -> Tokens:
    """A copy: the record and the messages outlive the caller's buffer."""
    array = np.array(value.detach().cpu().numpy() if isinstance(value, Tensor) else value)
    if array.ndim != 1:
        raise SubmissionError(one.request, name, f"of shape {array.shape}", "one dimension")
    if not array.size:
        return np.zeros(0, dtype=np.int32)
    if array.dtype.kind not in "iu":
        raise SubmissionError(one.request, name, f"of dtype {array.dtype}", "whole numbers")
    low, high = int(array.min()), int(array.max())
    if low < 0 or high >= vocab_size:
        raise SubmissionError(one.request, name, low if low < 0 else high, f"token ids below {vocab_size}")
    return array.astype(np.int32, copy=False)


def _floating(rows: Rows) -> bool:
    return rows.is_floating_point() if isinstance(rows, Tensor) else rows.dtype.kind == "f"
