"""What is measured, as values for a table and for JSON. Times are in milliseconds."""

from __future__ import annotations

from typing import Any

import msgspec

from sidedraft.bench.samples import Spread
from sidedraft.bench.session import Session


class Agreed(msgspec.Struct, frozen=True, kw_only=True):
    """What a handshake told, without the session's secrets."""

    transport: str
    address: str
    family: str
    row_width: int
    row_format: str
    minor: int
    features: tuple[str, ...]
    namespace: str
    identity: str
    max_depth: int
    confidence: bool
    limits: dict[str, int]
    heartbeat_ms: int
    lease_ms: int


class RoundTrip(msgspec.Struct, frozen=True, kw_only=True):
    """A proposal of one request, the model's time left out."""

    transport: str
    row_format: str
    payload: int
    """Bytes of rows."""
    time: Spread


class Ingest(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt's rows, from submit until the server has written them and drafted from them."""

    transport: str
    row_format: str
    rows: int
    payload: int
    """Bytes of rows that were sent."""
    time: Spread
    blocked: Spread
    """How long `submit` took: the engine's thread does nothing else meanwhile."""
    gigabytes_per_second: float
    rows_per_second: float


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """A step of `batch` requests, each with a few accepted rows; the four parts are medians."""

    transport: str
    row_format: str
    context: int
    batch: int
    depth: int
    time: Spread
    client: float
    """Verifier and wire."""
    queue: float
    """Server: until the engine took it up."""
    model: float
    """Server: context rows and query pass."""
    other: float
    """Server: the rest."""


class Overlap(msgspec.Struct, frozen=True, kw_only=True):
    """Proposals of one verifier while another one's prompts are ingested, beside an idle server."""

    transport: str
    row_format: str
    batch: int
    idle: Spread
    busy: Spread
    ratio: float
    """Of the medians."""
    gigabytes_per_second: float
    """Ingested meanwhile."""


class Absent(msgspec.Struct, frozen=True, kw_only=True):
    """A row format that could not be measured."""

    transport: str
    row_format: str
    why: str


class Report(msgspec.Struct, kw_only=True):
    """Everything of one run."""

    server: str
    """`own`, or `running` when it was there before."""
    draft: str
    rounds: int
    agreed: list[Agreed] = []
    round_trips: list[RoundTrip] = []
    ingest: list[Ingest] = []
    proposals: list[Proposal] = []
    overlap: list[Overlap] = []
    absent: list[Absent] = []

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`."""
        found: dict[str, Any] = msgspec.to_builtins(self)
        return found


def agreed(transport: str, address: str, family: str, session: Session) -> Agreed:
    agreement = session.agreement
    return Agreed(
        transport=transport,
        address=address,
        family=family,
        row_width=agreement.row_width,
        row_format=agreement.row_format.name,
        minor=agreement.minor,
        features=agreement.features,
        namespace=agreement.namespace,
        identity=agreement.identity,
        max_depth=agreement.max_depth,
        confidence=agreement.confidence,
        limits=msgspec.to_builtins(agreement.limits),
        heartbeat_ms=agreement.heartbeat_ms,
        lease_ms=agreement.lease_ms,
    )
