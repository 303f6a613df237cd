"""An open request as the engine's thread knows it."""

from __future__ import annotations

from dataclasses import dataclass, field

from sidedraft.engine.table import RowTable


@dataclass(slots=True, eq=False)
class Request:
    """Rows, their names and how far the request has come; its tokens are the `TokenLedger`'s."""

    owner: int
    id: int
    generation: int
    table: RowTable
    lookup: bool
    """Whether published blocks may be taken over."""
    committed: int = 0
    keys: list[bytes] = field(default_factory=list)
    """Keys of its full blocks; empty for a private request."""
    closed: bool = False
