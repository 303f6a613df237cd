"""What a handshake decided, as both ends hold it."""

from __future__ import annotations

from dataclasses import dataclass

from sidedraft.wire.messages import SessionLimits
from sidedraft.wire.rows import RowFormat


@dataclass(frozen=True, slots=True)
class Agreement:
    """Everything an encoder, a decoder and an engine need to know of a session. Never changes."""

    session: int
    epoch: int
    minor: int
    features: tuple[str, ...]
    namespace: str
    row_format: RowFormat
    row_width: int
    """Values of one aux row: taps x the target's hidden size."""
    target_key: bytes
    """`identity.target_key` of the target as agreed: part of every block's key."""
    vocab_size: int
    """Token ids on the wire lie in `[0, vocab_size)`."""
    max_depth: int
    max_position: int
    """Greatest anchor position that the verifier can send."""
    limits: SessionLimits
    identity: str
    confidence: bool
    heartbeat_ms: int
    lease_ms: int
    window: int | None = None
    """Context rows that a proposal can see; None for all, and where the server cannot say."""
    retain: str = "window"
    """Which of a prompt's rows the server keeps: `messages.RETAIN`."""

    @property
    def row_bytes(self) -> int:
        """Bytes of one row on the wire."""
        return self.row_format.row_bytes(self.row_width)
