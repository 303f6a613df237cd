"""What the engine thread hands back to the I/O thread."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidedraft.wire.advance import Answer

if TYPE_CHECKING:
    # The I/O thread runs before torch is there, and the job's module needs it.
    from sidedraft.server.job import Job


@dataclass(frozen=True, slots=True)
class Reply:
    """What became of the jobs of one step. `answers` are in the order of `jobs`; none when released."""

    jobs: list[Job]
    answers: list[Answer]
    started: float = 0.0
    """Clock reading."""
    ingest: float = 0.0
    """Seconds."""
    propose: float = 0.0
    """Seconds."""
    proposals: int = 0
    """Proposals that were computed together."""
    slices: int = 0
    """Ingest slices that ran while one of the step's proposals waited: the most of any."""
