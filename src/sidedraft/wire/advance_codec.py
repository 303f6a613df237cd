"""An `AdvanceBatch` as header and payload, and back. Its rules stand in `wire.advance_rules`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sidedraft.wire import advance_rules as rules
from sidedraft.wire.advance import Advance, Opening
from sidedraft.wire.agreement import Agreement
from sidedraft.wire.batch import AdvanceBatch, Advances, OpeningHeader
from sidedraft.wire.checks import RowErrors, same_length
from sidedraft.wire.errors import Code, WireError
from sidedraft.wire.payload import Layout, expected_size, offsets


def layout(batch: AdvanceBatch, row_bytes: int) -> Layout:
    """Where the payload's parts stand."""
    tokens = rows = 0
    for advance in batch.advances:
        tokens += len(advance.tokens)
        rows += advance.row_count
        if advance.opening is not None:
            tokens += len(advance.opening.prefix)
    return Layout(tokens, rows * row_bytes)


def header(batch: AdvanceBatch) -> Advances:
    """The scalars of a batch as columns."""
    advances = batch.advances
    return Advances(
        session=batch.session,
        epoch=batch.epoch,
        serial=batch.serial,
        budget_us=batch.budget_us,
        request=[a.request for a in advances],
        generation=[a.generation for a in advances],
        number=[a.number for a in advances],
        first=[a.first for a in advances],
        count=[len(a.tokens) for a in advances],
        next_token=[a.next_token for a in advances],
        depth=[a.depth for a in advances],
        rows_at=[a.rows_at for a in advances],
        rows=[a.row_count for a in advances],
        opening=[_opening_header(a.opening) for a in advances],
    )


def pack(batch: AdvanceBatch, row_bytes: int, buffer: memoryview) -> memoryview:
    """Tokens and rows into a buffer of at least `layout(...).size` bytes; returns the part used.

    Raises:
        WireError: tokens are not int32 [n], or rows not uint8 [r, row_bytes].
    """
    tokens: list[npt.NDArray[np.int32]] = []
    rows: list[npt.NDArray[np.uint8]] = []
    for advance in batch.advances:
        if advance.opening is not None:
            tokens.append(_int32("prefix", advance.opening.prefix, advance))
        tokens.append(_int32("tokens", advance.tokens, advance))
        if advance.rows is not None:
            rows.append(_rows(advance.rows, row_bytes, advance))
    return layout(batch, row_bytes).pack(buffer, tokens, rows)


def decode(head: Advances, payload: memoryview, agreement: Agreement) -> AdvanceBatch:
    """Check every advance and give views of the payload, without copying it.

    An advance that breaks a rule is left out and stands in `refused`. When the payload does not have the
    size that the header adds up to, nobody's share is known, and all advances are refused.

    Raises:
        WireError: the columns differ in length, or hold none or too many advances.
    """
    same_length(head, agreement.limits.batch)
    batch = AdvanceBatch(head.session, head.epoch, head.serial, head.budget_us, [])
    columns = rules.columns_of(head)
    errors = RowErrors(columns)
    parts = rules.layout(columns, agreement.row_bytes)
    if parts is None or parts.size != len(payload):
        errors.refuse_all(Code.BAD_PAYLOAD, "payload", f"{len(payload)} bytes", expected_size(parts))
        batch.refused = errors.in_order()
        return batch

    rules.check(errors, head, columns, agreement)
    tokens, tail = parts.split(payload)
    token_at = offsets(columns["count"] + columns["prefix"])
    vocab = agreement.vocab_size
    errors.require_values(
        tokens.view(np.uint32) < vocab,  # as unsigned, negative ids are huge
        "tokens",
        tokens,
        token_at,
        f"0 to {vocab - 1}",
        Code.BAD_TOKEN,
    )
    batch.refused = errors.in_order()
    row_at = offsets(columns["rows"]).tolist()
    rows = np.frombuffer(tail, dtype=np.uint8).reshape(row_at[-1], agreement.row_bytes)
    bounds = token_at.tolist()
    for i in range(len(head.request)):
        if i not in errors:
            own_rows = rows[row_at[i] : row_at[i + 1]] if head.rows[i] else None
            batch.advances.append(_advance(head, i, tokens[bounds[i] : bounds[i + 1]], own_rows))
    return batch


def _advance(
    head: Advances, i: int, tokens: npt.NDArray[np.int32], rows: npt.NDArray[np.uint8] | None
) -> Advance:
    """Row i; `tokens` has its prefix in front."""
    opening, opens = None, head.opening[i]
    if opens is not None:
        opening = Opening(tokens[: opens.prefix], opens.context_key, opens.private, opens.lookup)
        tokens = tokens[opens.prefix :]
    return Advance(
        request=head.request[i],
        generation=head.generation[i],
        number=head.number[i],
        first=head.first[i],
        tokens=tokens,
        next_token=head.next_token[i],
        depth=head.depth[i],
        rows_at=head.rows_at[i],
        rows=rows,
        opening=opening,
    )


def _opening_header(opening: Opening | None) -> OpeningHeader | None:
    if opening is None:
        return None
    return OpeningHeader(len(opening.prefix), opening.context_key, opening.private, opening.lookup)


def _int32(name: str, tokens: npt.NDArray[np.int32], advance: Advance) -> npt.NDArray[np.int32]:
    if tokens.dtype != np.int32 or tokens.ndim != 1:
        raise _misshapen(Code.BAD_TOKEN, name, tokens, "int32 [n]", advance)
    return tokens


def _rows(rows: npt.NDArray[np.uint8], row_bytes: int, advance: Advance) -> npt.NDArray[np.uint8]:
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != row_bytes:
        raise _misshapen(Code.BAD_ROWS, "rows", rows, f"uint8 [r, {row_bytes}]", advance)
    return rows


def _misshapen(
    code: Code, field: str, array: npt.NDArray[np.generic], expected: str, advance: Advance
) -> WireError:
    ids = {"request": advance.request, "generation": advance.generation, "number": advance.number}
    return WireError(code, field, f"{array.dtype} {list(array.shape)}", expected, **ids)
