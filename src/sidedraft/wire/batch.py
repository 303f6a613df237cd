"""Batches: many advances or answers in one message, their scalars as columns (design section 3)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from sidedraft.wire.advance import Advance, Answer, Outcome
from sidedraft.wire.errors import WireError
from sidedraft.wire.limits import MAX_BATCH
from sidedraft.wire.messages import Message

Ints = Annotated[list[int], Meta(max_length=MAX_BATCH)]
Flags = Annotated[list[bool], Meta(max_length=MAX_BATCH)]
Texts = Annotated[list[str], Meta(max_length=MAX_BATCH)]


class Timings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Where a batch of answers spent its time on the server, in microseconds."""

    queue: int = 0
    """From arrival until the engine took it up: the longest in the batch."""
    ingest: int = 0
    """Writing context rows."""
    propose: int = 0
    """The query pass."""
    server: int = 0
    """From arrival until the answer was handed to the transport: the longest in the batch."""
    batch: int = 0
    """Proposals that shared the query pass (a count)."""
    slices: int | UnsetType = UNSET
    """Since minor 2: ingest slices that ran while a proposal waited for its forward, the most in the batch (a
    count). It waits from its arrival on, or from the end of its own request's earlier rows."""


@dataclass(slots=True, eq=False)
class AdvanceBatch:
    """Advances of one message, verifier to server."""

    session: int
    epoch: int
    serial: int
    """The verifier's count of batches, over both connections."""
    budget_us: int
    """Microseconds left, when this was sent, until nobody waits for its proposals; 0 is no limit."""
    advances: list[Advance]
    refused: list[WireError] = field(default_factory=list)
    """Of a decoded batch: the advances that broke a rule; they are not in `advances`."""


@dataclass(slots=True, eq=False)
class AnswerBatch:
    """Answers of one message, server to verifier. They may answer advances of several batches."""

    session: int
    epoch: int
    serial: int
    """The highest `AdvanceBatch.serial` that is answered here."""
    answers: list[Answer]
    timings: Timings = field(default_factory=Timings)
    refused: list[WireError] = field(default_factory=list)
    """Of a decoded batch: the answers that broke a rule; they are not in `answers`."""


class OpeningHeader(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """The scalars of an `Opening`; its prefix stands before the advance's tokens in the payload."""

    prefix: int
    """Count of prefix tokens."""
    context_key: bytes
    private: bool
    lookup: bool


class Advances(Message, frozen=True, tag="advances", kw_only=True):
    """Header of an `AdvanceBatch`: one value a column for each advance."""

    session: int
    epoch: int
    serial: int
    budget_us: int
    request: Ints
    generation: Ints
    number: Ints
    first: Ints
    count: Ints
    """Tokens: n."""
    next_token: Ints
    depth: Ints
    rows_at: Ints
    rows: Ints
    """Rows that travel: r."""
    opening: Annotated[list[OpeningHeader | None], Meta(max_length=MAX_BATCH)]


class Answers(Message, frozen=True, tag="answers", kw_only=True):
    """Header of an `AnswerBatch`: one value a column for each answer."""

    session: int
    epoch: int
    serial: int
    timings: Timings
    request: Ints
    generation: Ints
    number: Ints
    outcome: Ints
    committed: Ints
    rows_present: Ints
    context_start: Ints
    count: Ints
    """Draft tokens."""
    confident: Flags
    """Whether confidences travel, one for each draft token."""
    error: Texts
    detail: Texts


def refusal(error: WireError) -> Answer | None:
    """The answer to an advance that was refused, or None when the error names no request."""
    if error.request is None or error.generation is None or error.number is None:
        return None
    return Answer(
        error.request,
        error.generation,
        error.number,
        Outcome.REFUSED,
        error=error.code.value,
        detail=error.detail,
    )
