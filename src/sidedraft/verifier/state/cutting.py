"""How advances become messages: long ones are cut for the bulk lane, the rest share control messages.

Positions and sizes only; `verifier.staging` puts bytes into the result.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from sidedraft.verifier.state.entry import Entry
from sidedraft.verifier.state.step import Step
from sidedraft.wire.advance import Advance, Opening
from sidedraft.wire.limits import ALIGNMENT
from sidedraft.wire.messages import SessionLimits
from sidedraft.wire.payload import Layout

TOGETHER = 1024
"""Advances in one message at most, whatever was agreed: the header of so many openings fits its limit."""


@dataclass(slots=True, eq=False)
class Piece:
    """An advance to be sent, and which of the caller's rows belong to it."""

    advance: Advance
    source: int
    """Which entry of the step it was cut from."""
    rows: range
    """Indices into the caller's rows."""

    def layout(self, row_bytes: int) -> Layout:
        opening = self.advance.opening
        prefix = 0 if opening is None else len(opening.prefix)
        return Layout(prefix + len(self.advance.tokens), len(self.rows) * row_bytes)


@dataclass(slots=True, eq=False)
class Parcel:
    """One message of advances before it is encoded."""

    bulk: bool
    pieces: list[Piece]
    layout: Layout
    session: int
    """Of the session it was made for; it is worthless in another."""
    deadline: float | None = None
    """When its proposals are waited for no longer; None when it asks for none."""
    buffer: Any = None
    """The staging buffer behind `payload`; given back when the peer can no longer need it."""
    payload: memoryview | None = None
    step: Step | None = None
    """Whose times it belongs to."""

    @property
    def size(self) -> int:
        """Bytes of the payload frame."""
        return self.layout.size

    def requests(self) -> list[int]:
        """Ids of the requests in it."""
        return [piece.advance.request for piece in self.pieces]

    def row_count(self) -> int:
        return sum(piece.advance.row_count for piece in self.pieces)


@dataclass(slots=True, eq=False)
class Cut:
    """One entry's advances, in order; the last one carries the depth."""

    bulk: bool
    pieces: list[Piece] = field(default_factory=list)


class TooLongError(Exception):
    """The advance fits no message that was agreed on."""


def cut(
    entry: Entry,
    source: int,
    request: int,
    generation: int,
    number: int,
    depth: int,
    opening: Opening | None,
    *,
    row_bytes: int,
    control_rows: int,
    limits: SessionLimits,
) -> Cut:
    """The advances that state `entry`, numbered from `number`.

    Raises:
        TooLongError: when not even one of its tokens, or its prefix, fits a message.
    """
    prefix = 0 if opening is None else len(opening.prefix)
    whole = Layout(prefix + len(entry.tokens), entry.row_count * row_bytes)
    if whole.tail <= control_rows and whole.size <= limits.control_payload:
        spans = [(entry.first, entry.end, entry.rows_at, entry.rows_at + entry.row_count)]
        bulk = False
    else:
        spans = list(_spans(entry, prefix, row_bytes, limits.bulk_payload))
        bulk = True
    result = Cut(bulk)
    for first, end, rows_at, rows_end in spans:
        last = end == entry.end
        start = rows_at - entry.rows_at + entry.rows_skip
        advance = Advance(
            request=request,
            generation=generation,
            number=number + len(result.pieces),
            first=first,
            tokens=entry.tokens[first - entry.first : end - entry.first],
            next_token=entry.next_token if last else int(entry.tokens[end - entry.first]),
            depth=depth if last else 0,
            rows_at=rows_at,
            opening=opening if not result.pieces else None,
        )
        result.pieces.append(Piece(advance, source, range(start, start + rows_end - rows_at)))
    return result


def _spans(entry: Entry, prefix: int, row_bytes: int, frame: int) -> Iterator[tuple[int, int, int, int]]:
    """Cut `[first, end)` so that each part fits a frame: (first, end, rows_at, rows_end)."""
    at = entry.first
    rows_end = entry.rows_at + entry.row_count
    while True:
        room = frame - (ALIGNMENT - 4) - 4 * prefix  # the greatest padding that tokens can need
        if room < 0:
            raise TooLongError
        start = at
        for end, cost in ((entry.rows_at, 4), (rows_end, 4 + row_bytes), (entry.end, 4)):
            took = min(max(0, end - at), room // cost)
            room -= took * cost
            at += took
            if at < end:
                break
        if at == start and at < entry.end and not prefix:
            raise TooLongError
        prefix = 0  # it travels with the first piece, alone if need be
        low, high = max(start, entry.rows_at), min(at, rows_end)
        yield (start, at, low, high) if low < high else (start, at, start, start)
        if at == entry.end:
            return


def parcels(
    cuts: Iterable[Cut], *, session: int, row_bytes: int, limits: SessionLimits, deadline: float
) -> Iterator[Parcel]:
    """Pack advances into messages: each long one's pieces alone, the others together while they fit.

    Those that ask for a draft go first and share no message with the others, so that they do not wait for
    work that nobody waits for. When the others are too much for one control message they take the bulk
    lane, whose credit holds them back before they fill the control connection's queue.
    """
    asking: list[Piece] = []
    quiet: list[Piece] = []
    long: list[Piece] = []
    for one in cuts:
        group = long if one.bulk else asking if one.pieces[-1].advance.depth else quiet
        group.extend(one.pieces)
    crowd: list[Piece] = []
    if _layout(quiet, row_bytes).size > limits.control_payload:
        crowd = [piece for piece in quiet if piece.layout(row_bytes).size <= limits.bulk_payload]
        quiet = [piece for piece in quiet if piece.layout(row_bytes).size > limits.bulk_payload]
    for bulk, group in ((False, asking), (False, quiet), (True, long), (True, crowd)):
        frame = limits.bulk_payload if bulk else limits.control_payload
        most = 1 if group is long else min(limits.batch, TOGETHER)
        for together in _groups(group, row_bytes, frame, most):
            asks = any(piece.advance.depth for piece in together)
            layout = _layout(together, row_bytes)
            yield Parcel(bulk, together, layout, session, deadline if asks else None)


def _groups(pieces: Iterable[Piece], row_bytes: int, frame: int, most: int) -> Iterator[list[Piece]]:
    """Consecutive pieces whose payload fits a frame."""
    together: list[Piece] = []
    tokens = tail = 0
    for piece in pieces:
        own = piece.layout(row_bytes)
        full = Layout(tokens + own.tokens, tail + own.tail).size > frame or len(together) == most
        if together and full:
            yield together
            together, tokens, tail = [], 0, 0
        together.append(piece)
        tokens, tail = tokens + own.tokens, tail + own.tail
    if together:
        yield together


def _layout(pieces: Iterable[Piece], row_bytes: int) -> Layout:
    layouts = [piece.layout(row_bytes) for piece in pieces]
    return Layout(sum(one.tokens for one in layouts), sum(one.tail for one in layouts))
