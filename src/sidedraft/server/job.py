"""An advance on its way through the server, with what the I/O thread must remember of how it came."""

from __future__ import annotations

from dataclasses import dataclass

from sidedraft.engine import Work
from sidedraft.transport.base import Lane


@dataclass(slots=True)
class Receipt:
    """A payload that several advances share; its memory is free when the last one is done."""

    owner: int
    lane: Lane
    size: int
    """Bytes."""
    left: int
    """Advances that still read from it."""


@dataclass(slots=True, eq=False, kw_only=True)
class Job(Work):
    """One advance, the engine's unit of work."""

    serial: int
    """Of the batch it came in."""
    receipt: Receipt
    since: int = 0
    """Slices given out by the schedule when the job's turn came; `Schedule`'s own."""
    waited: int = 0
    """Slices that ran between a proposal's turn and its launch. Its turn comes when it arrives, or when what
    its request sent before is taken."""

    @property
    def row_bytes(self) -> int:
        return 0 if self.advance.rows is None else self.advance.rows.nbytes
