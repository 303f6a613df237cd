"""The unit of work and its answer, one request each (design section 3).

These are what both halves reason about; how they become bytes is `wire.batch`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int32]
"""Token ids, shape [n], int32."""

MAX_CONTEXT_KEY = 64
"""Bytes a context key may have."""

NO_TOKENS: Tokens = np.zeros(0, dtype=np.int32)


class Outcome(IntEnum):
    """What became of one advance."""

    INGESTED = 0
    """Applied; no draft was asked for."""
    DRAFTED = 1
    """Applied; `Answer.tokens` holds the draft."""
    EXPIRED = 2
    """Applied, but its budget ran out before the query pass: no draft."""
    SUPERSEDED = 3
    """Applied, but a later advance of the request had arrived already: no draft."""
    NO_DRAFT = 4
    """Applied, but the family cannot draft from the rows it has."""
    REFUSED = 5
    """Not applied; `Answer.error` says why and `Answer.detail` in words."""


@dataclass(slots=True, eq=False)
class Opening:
    """What a request's first advance carries besides: its prefix and what else its context depends on."""

    prefix: Tokens = field(default_factory=lambda: NO_TOKENS)
    """Tokens `[0, first)`."""
    context_key: bytes = b""
    """At most `MAX_CONTEXT_KEY` bytes digesting adapter, images, tenant salt; part of every block's key."""
    private: bool = False
    """True: neither looked up nor published (prompts given as embeddings)."""
    lookup: bool = True
    """False: published, but not looked up (the re-open after an acceptance alarm)."""


@dataclass(slots=True, eq=False)
class Advance:
    """One request's accepted progress since the last advance.

    `tokens` are those of `[first, first + n)`, complete and accepted only. `next_token` stands at
    `first + n`: the anchor (last sampled token), or the next prompt token inside a prompt.
    `rows` holds aux states of positions `[rows_at, rows_at + r)`, a sub-range of `[first, first + n)`:
    uint8 [r, row_bytes], in the agreed row format, taps in ascending order.
    """

    request: int
    """Chosen by the verifier; never used twice for different requests of one session."""
    generation: int
    """How often the request was opened before: 0, 1, ..."""
    number: int
    """Place in this generation's sequence: 0 opens it, then 1, 2, ... over both connections."""
    first: int
    tokens: Tokens
    next_token: int
    depth: int = 0
    """Draft tokens wanted now; 0 is ingest only."""
    rows_at: int = 0
    rows: npt.NDArray[np.uint8] | None = None
    opening: Opening | None = None
    """Present exactly when `number == 0`."""

    @property
    def end(self) -> int:
        """First position not covered: the committed end after this advance, and the anchor's position."""
        return self.first + len(self.tokens)

    @property
    def row_count(self) -> int:
        return 0 if self.rows is None else len(self.rows)


@dataclass(slots=True, eq=False)
class Answer:
    """The server's word on one advance; cumulative, so that a lost one is made good by the next."""

    request: int
    generation: int
    number: int
    outcome: Outcome
    committed: int = 0
    """The request's committed end on the server after this advance."""
    rows_present: int = 0
    """Context rows in `[context_start, committed)` that are present (holes excluded)."""
    context_start: int = 0
    """First position whose row is present; equals `committed` when there is none."""
    tokens: Tokens = field(default_factory=lambda: NO_TOKENS)
    """Draft tokens in target ids, shape [depth], when `outcome` is DRAFTED."""
    confidence: npt.NDArray[np.float32] | None = None
    """Estimated acceptance per draft token, shape [depth], when the family has it and it was agreed."""
    error: str = ""
    """An `errors.Code` value when `outcome` is REFUSED."""
    detail: str = ""
