"""An advance on its way through the server, with what the I/O thread must remember of how it came."""

from __future__ import annotations

from dataclasses import dataclass

from sidedraft.engine import Work


@dataclass(slots=True)
class Receipt:
    """A bulk payload that several advances share; its bytes go back as credit when the last one is done."""

    owner: int
    bytes: int
    left: int
    """Advances that still read from it."""


@dataclass(slots=True, eq=False, kw_only=True)
class Job(Work):
    """One advance, the engine's unit of work."""

    serial: int
    """Of the batch it came in."""
    receipt: Receipt | None = None
    """Of its payload, when that came by the bulk connection."""

    @property
    def row_bytes(self) -> int:
        return 0 if self.advance.rows is None else self.advance.rows.nbytes
