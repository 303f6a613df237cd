"""What the engine has done and holds."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class EngineCounters:
    """Numbers that only grow. Rows are counted one a position, holes the same."""

    steps: int = 0
    """Launches completed."""
    proposals: int = 0
    """Drafts given."""
    rows_received: int = 0
    rows_restored: int = 0
    """Found in the index: not computed again."""
    rows_dropped: int = 0
    """Received for positions that were present."""
    rows_unseen: int = 0
    """Received for positions that no proposal of their request can see, and not kept for others."""
    rows_without_room: int = 0
    """Received, but the pool was full, or the position beyond the draft's last: holes."""
    blocks_published: int = 0
    collisions: int = 0
    """Blocks that stayed private because another of equal content was published before."""
    opened: int = 0
    refused: int = 0
    expired: int = 0
    superseded: int = 0


@dataclass(frozen=True, slots=True)
class EngineStats:
    """A snapshot for status pages; may be taken by any thread."""

    requests: int
    blocks_total: int
    blocks_free: int
    blocks_kept: int
    """Published, held by no request."""
    blocks_pinned: int
    blocks_held: int
    index: int
    """Published blocks."""
    evictions: int
    rows_computed: int
    forwards: int
    counters: EngineCounters
