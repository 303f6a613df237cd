"""What reaches the engine: one advance, whose it is, and what it does to the request's tokens."""

from __future__ import annotations

from dataclasses import dataclass

from sidedraft.wire.advance import Advance
from sidedraft.wire.errors import WireError


@dataclass(slots=True, eq=False)
class Change:
    """What an advance does to a request's committed tokens (worked out by `TokenLedger`)."""

    kept: int
    """Tokens `[0, kept)` are what they were: rows below stay, rows at and above are void."""
    end: int
    """The committed end afterwards."""
    first_block: int
    """Index of the first block whose key is new."""
    keys: list[bytes]
    """Keys of the full blocks from `first_block` on; empty for a private request."""


@dataclass(slots=True, eq=False)
class Work:
    """One advance on its way through the engine. `Sequencer` fills in `change` or `refusal`."""

    owner: int
    """The session it came by: request ids are told apart by it."""
    namespace: str
    target_key: bytes
    row_format: str
    advance: Advance
    arrived: float
    """Clock reading, seconds."""
    expires: float | None
    """Clock reading after which a proposal is of no use; None is never."""
    change: Change | None = None
    refusal: WireError | None = None
