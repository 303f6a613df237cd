"""An `AdvanceBatch` as header and payload, and back. Every rule on an advance stands in `decode`."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sidedraft.wire.advance import MAX_CONTEXT_KEY, Advance, Opening
from sidedraft.wire.agreement import Agreement
from sidedraft.wire.batch import AdvanceBatch, Advances, OpeningHeader
from sidedraft.wire.checks import Column, RowErrors, column, in_range, same_length
from sidedraft.wire.errors import Code, WireError
from sidedraft.wire.limits import MAX_PAYLOAD
from sidedraft.wire.payload import Layout, offsets


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
    n = same_length(head, agreement.limits.batch)
    batch = AdvanceBatch(head.session, head.epoch, head.serial, head.budget_us, [])
    errors = RowErrors(head.request, head.generation, head.number)
    counts, rows = column(head.count), column(head.rows)
    prefixes = column([0 if o is None else o.prefix for o in head.opening])
    parts = _layout(counts, prefixes, rows, agreement.row_bytes)
    if parts is None or parts.size != len(payload):
        expected = "counts within bounds" if parts is None else f"{parts.size} bytes, by its header"
        errors.refuse_all(n, Code.BAD_PAYLOAD, "payload", f"{len(payload)} bytes", expected)
        batch.refused = errors.in_order()
        return batch

    _check_scalars(errors, head, counts, rows, agreement)
    _check_openings(errors, head, prefixes)
    tokens, tail = parts.split(payload)
    token_at, row_at = offsets(counts + prefixes), offsets(rows)
    errors.require_values(
        tokens.view(np.uint32) < agreement.vocab_size,  # as unsigned, negative ids are huge
        "tokens",
        tokens,
        token_at,
        f"0 to {agreement.vocab_size - 1}",
        Code.BAD_TOKEN,
    )
    batch.refused = errors.in_order()
    table = np.frombuffer(tail, dtype=np.uint8).reshape(int(row_at[-1]), agreement.row_bytes)
    for i, (begin, end) in enumerate(zip(token_at[:-1].tolist(), token_at[1:].tolist(), strict=True)):
        if i in errors:
            continue
        opening = head.opening[i]
        own = tokens[begin:end]
        prefix = 0 if opening is None else opening.prefix
        batch.advances.append(
            Advance(
                request=head.request[i],
                generation=head.generation[i],
                number=head.number[i],
                first=head.first[i],
                tokens=own[prefix:],
                next_token=head.next_token[i],
                depth=head.depth[i],
                rows_at=head.rows_at[i],
                rows=table[row_at[i] : row_at[i + 1]] if head.rows[i] else None,
                opening=None if opening is None else _opening(opening, own[:prefix]),
            )
        )
    return batch


def _layout(counts: Column, prefixes: Column, rows: Column, row_bytes: int) -> Layout | None:
    """The payload's parts, or None when a count is out of all bounds (so that sums cannot overflow)."""
    for counted in (counts, prefixes, rows):
        if not in_range(counted, 0, MAX_PAYLOAD).all():
            return None
    return Layout(int(counts.sum() + prefixes.sum()), int(rows.sum()) * row_bytes)


def _check_scalars(
    errors: RowErrors, head: Advances, counts: Column, rows: Column, agreement: Agreement
) -> None:
    last = agreement.max_position
    first, rows_at = column(head.first), column(head.rows_at)
    errors.require(in_range(first, 0, last), "first", head.first, f"0 to {last}")
    errors.require(
        counts <= last - first, "count", head.count, lambda i: f"0 to {last - head.first[i]} after first"
    )
    vocab = agreement.vocab_size
    errors.require(
        in_range(column(head.next_token), 0, vocab - 1),
        "next_token",
        head.next_token,
        f"0 to {vocab - 1}",
        Code.BAD_TOKEN,
    )
    depth = agreement.max_depth
    errors.require(in_range(column(head.depth), 0, depth), "depth", head.depth, f"0 to {depth}")
    errors.require(
        rows <= counts, "rows", head.rows, lambda i: f"0 to {head.count[i]}, its tokens", Code.BAD_ROWS
    )
    # The bounds are compared as differences, which cannot overflow where the earlier rules hold.
    inside = (rows_at - first >= 0) & (rows_at - first <= counts - rows)
    errors.require(
        (rows == 0) & (rows_at >= 0) | (rows > 0) & inside,
        "rows_at",
        head.rows_at,
        lambda i: f"{head.first[i]} to {head.first[i] + head.count[i] - head.rows[i]}",
        Code.BAD_ROWS,
    )


def _check_openings(errors: RowErrors, head: Advances, prefixes: Column) -> None:
    opened = np.array([o is not None for o in head.opening], dtype=np.bool_)
    errors.require(
        opened == (column(head.number) == 0),
        "opening",
        ["absent" if o is None else "present" for o in head.opening],
        lambda i: f"{'present' if head.number[i] == 0 else 'absent'} with number {head.number[i]}",
        Code.BAD_OPENING,
    )
    errors.require(
        ~opened | (prefixes == column(head.first)),
        "prefix",
        prefixes,
        lambda i: f"{head.first[i]} tokens, as first says",
        Code.BAD_OPENING,
    )
    keys = [b"" if o is None else o.context_key for o in head.opening]
    errors.require(
        column([len(key) for key in keys]) <= MAX_CONTEXT_KEY,
        "context_key",
        [f"{len(key)} bytes" for key in keys],
        f"at most {MAX_CONTEXT_KEY} bytes",
        Code.BAD_OPENING,
    )


def _opening(head: OpeningHeader, prefix: npt.NDArray[np.int32]) -> Opening:
    return Opening(prefix, head.context_key, head.private, head.lookup)


def _opening_header(opening: Opening | None) -> OpeningHeader | None:
    if opening is None:
        return None
    return OpeningHeader(len(opening.prefix), opening.context_key, opening.private, opening.lookup)


def _int32(name: str, tokens: npt.NDArray[np.int32], advance: Advance) -> npt.NDArray[np.int32]:
    if tokens.dtype != np.int32 or tokens.ndim != 1:
        raise _local(Code.BAD_TOKEN, name, f"{tokens.dtype} {list(tokens.shape)}", "int32 [n]", advance)
    return tokens


def _rows(rows: npt.NDArray[np.uint8], row_bytes: int, advance: Advance) -> npt.NDArray[np.uint8]:
    if rows.dtype != np.uint8 or rows.ndim != 2 or rows.shape[1] != row_bytes:
        expected = f"uint8 [r, {row_bytes}]"
        raise _local(Code.BAD_ROWS, "rows", f"{rows.dtype} {list(rows.shape)}", expected, advance)
    return rows


def _local(code: Code, field: str, value: str, expected: str, advance: Advance) -> WireError:
    ids = {"request": advance.request, "generation": advance.generation, "number": advance.number}
    return WireError(code, field, value, expected, **ids)
