"""What the server counts, for status and metrics."""

from __future__ import annotations

from dataclasses import dataclass, field

from sidedraft.metrics import Counter, Stages
from sidedraft.wire.batch import Timings

STAGES = ("server_queue", "server_ingest", "server_propose", "server_total")
"""Those of `wire.figures.STAGES` that a server sees by itself."""


@dataclass(slots=True)
class IoCounters:
    """Written by the I/O thread."""

    messages: Counter = field(default_factory=Counter)
    """Whole messages received, on both lanes."""
    bytes_received: Counter = field(default_factory=Counter)
    advances: Counter = field(default_factory=Counter)
    """Advances received, refused ones included."""
    advances_refused: Counter = field(default_factory=Counter)
    """Advances that broke a rule before they reached the engine."""
    messages_refused: Counter = field(default_factory=Counter)
    """Messages that could not be used at all."""
    stale: Counter = field(default_factory=Counter)
    """Messages of another session or epoch, and answers whose session had ended."""
    sessions_opened: Counter = field(default_factory=Counter)
    sessions_refused: Counter = field(default_factory=Counter)
    sessions_expired: Counter = field(default_factory=Counter)
    """Sessions ended by their lease."""
    sends_refused: Counter = field(default_factory=Counter)
    """Answers that could not be queued: the peer is gone or does not read."""
    stages: Stages = field(default_factory=lambda: Stages(STAGES))
    """Of engine steps with proposals."""

    def spent(self, timings: Timings) -> None:
        """Where the time of such a step went."""
        parts = (timings.queue, timings.ingest, timings.propose, timings.server)
        for stage, microseconds in zip(STAGES, parts, strict=True):
            self.stages.histograms[stage].observe(microseconds)
