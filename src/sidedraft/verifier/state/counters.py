"""What happened, counted: every rung of the ladder, every refusal, every byte."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Written under the drafter's lock; read as a copy from `Drafter.status()`."""

    steps: int = 0
    """Submits."""
    asked: int = 0
    """Drafts a step waited for."""
    drafted: int = 0
    """Drafts that came in time and passed the checks."""
    late: int = 0
    """Asked and not answered by the deadline."""
    behind: int = 0
    """Drafts not asked because an earlier answer had not come."""
    resumed: int = 0
    """Requests that caught up, in the same generation."""
    expired: int = 0
    """Budgets the server found used up."""
    fillers: int = 0
    """Places in the engine's draft tensors that got a filler where a draft was wanted."""
    lost: int = 0
    """Requests whose state on the server became uncertain."""
    reopened: int = 0
    """Requests opened again, in a new generation."""
    refused: int = 0
    """Advances the server refused."""
    refused_sends: int = 0
    """Messages the transport did not take."""
    breaker_opened: int = 0
    breaker_closed: int = 0
    probes: int = 0
    """Proposals sent to learn whether lateness is over."""
    sessions: int = 0
    session_losses: int = 0
    epoch_changes: int = 0
    """New sessions with a server that has lost its memory."""
    handshake_failures: int = 0
    stale_messages: int = 0
    """Messages of another session or epoch: dropped."""
    stale_answers: int = 0
    """Answers for a request that moved on: dropped."""
    repeated_answers: int = 0
    """Answers for a number that was answered already: dropped."""
    bad_replies: int = 0
    """Answers that failed a check."""
    bad_messages: int = 0
    """Messages that could not be decoded."""
    failures: int = 0
    """`Failure` messages from the server."""
    crashes: int = 0
    """Unexpected errors on the I/O thread; each costs the session and nothing else."""
    heartbeats: int = 0
    rows_sent: int = 0
    rows_skipped: int = 0
    """Rows that no draft of their request can see: not sent."""
    bytes_skipped: int = 0
    """What they would have had."""
    rows_dropped: int = 0
    """Rows that found no staging buffer in time: a hole in the draft's context."""
    rows_known: int = 0
    """Context rows the server had, summed over the drafts it gave."""
    rows_missing: int = 0
    """Holes between the first of them and the draft's base, summed likewise."""
    bytes_control: int = 0
    """Payload bytes sent on the control connection."""
    bytes_bulk: int = 0
    """Payload bytes sent on the bulk connection."""
    bytes_rows: int = 0
    """Of all payload bytes, those of rows; the rest are token ids."""
    buffers_abandoned: int = 0
    """Staging buffers given up because their fate was unknown."""
