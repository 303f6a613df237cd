"""Settings of the engine: memory and batch bounds."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from sidedraft.settings.base import Settings
from sidedraft.settings.units import GIB, MIB, SIZE

Memory = Annotated[int, Meta(ge=1, le=1 << 50, description="a size above zero, such as 1GiB", extra=SIZE)]
Requests = Annotated[int, Meta(ge=1, le=4096, description="a count from 1 to 4096")]
Depth = Annotated[int, Meta(ge=1, le=64, description="a depth from 1 to 64")]
Window = Annotated[int, Meta(ge=1, le=1 << 30, description="a number of rows, at least 1")]


class EngineSettings(Settings, frozen=True, kw_only=True):
    """What sizes the engine. `kv_memory` covers the pool and the scratch."""

    kv_memory: Memory = 1 * GIB
    max_requests: Requests = 64
    """Requests held open at once, over all sessions; also the greatest batch of proposals."""
    max_depth: Depth | None = None
    """Greatest depth served; None is the draft's own."""
    window: Window | None = None
    """Context rows the draft may see; None is the draft's own."""
    block_size: Literal[16, 32, 64, 128] = 16
    """Rows of a block; see docs/measurements.md for the choice."""
    ingest_slice: Memory = 4 * MIB
    """Bytes of rows ingested between two looks at waiting proposals."""
