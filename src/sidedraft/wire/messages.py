"""Every message of the protocol, as tagged msgpack structs (design section 5, docs/protocol.md).

A message is one header frame and at most one payload frame. The header of `Advances` and `Answers` is a
struct of columns defined in `wire.batch`; all other messages are a header alone and stand here.
Unknown fields are refused: a new field belongs to a new minor version or a feature (`wire.versions`).
Lengths are bounded here, while decoding; ranges are checked by `wire.validate`, which can name the value.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from sidedraft.wire.limits import MAX_BATCH, MAX_DEPTH, MAX_LIST, MAX_NAME, MAX_TAPS

PROTOCOL = 1
"""Major version. Peers of different majors refuse each other."""

MINOR_LOWEST = 0
MINOR_HIGHEST = 2

RETAIN = ("window", "all")
"""Which rows of a prompt a server keeps: those that a proposal of its request can still see, or every one,
for other requests that share a part of it."""

Names = Annotated[tuple[str, ...], Meta(max_length=MAX_LIST)]
Taps = Annotated[tuple[int, ...], Meta(max_length=MAX_TAPS)]
Ids = Annotated[tuple[int, ...], Meta(max_length=MAX_BATCH)]
Name = Annotated[str, Meta(max_length=MAX_NAME)]
Positions = Annotated[tuple[int, ...], Meta(max_length=MAX_DEPTH)]


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", kw_only=True):
    """Base of every header."""


class TargetFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The target as the verifier runs it. Widths and taps must equal what the draft was trained for."""

    taps: Taps
    """Aux ids as captured, ascending: `k` is the residual stream entering layer `k`, that is the output of
    layer `k - 1`; `n_layers` is the last layer's output before the final norm."""
    stream: str = "residual"
    """Which stream the taps read; `attn_res` for targets with an attention-residual mix."""
    hidden_size: int
    vocab_size: int
    model_digest: str | None = None
    """`identity.model_digest` of architecture, sizes and rope; None when not known."""
    vocab_digest: str | None = None
    """`identity.vocab_digest` of the (id, token bytes) map; None when not known."""


class DraftFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The draft as each end reads it from config.json."""

    family: str
    layout: str
    """`anchor`: row j predicts position a+1+j. `bonus`: one more row; row j predicts position a+j."""
    max_depth: int


class Hello(Message, frozen=True, tag="hello", kw_only=True):
    """Verifier to server, first on a new control connection."""

    protocol: int = PROTOCOL
    minors: tuple[int, int] = (MINOR_LOWEST, MINOR_HIGHEST)
    software: str
    """Name and version of the peer, for logs."""
    verifier: str
    """A label shown in status and metrics."""
    namespace: str = "default"
    target: TargetFacts
    draft: DraftFacts
    row_formats: Names
    """Offered row formats (`rows.FORMATS` names), best first."""
    max_depth: int
    """Greatest depth this verifier will ask for."""
    max_position: int
    """Greatest absolute position it can send (its max_model_len)."""
    features: Names = ()
    strict_identity: bool = False
    """Refuse an identity that is only partly known."""


class SessionLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What the server allows one session; all in bytes or counts."""

    control_payload: int
    """Greatest payload frame on the control connection."""
    bulk_payload: int
    """Greatest payload frame on the bulk connection."""
    bulk_credit: int
    """Bytes of bulk payload that may be unacknowledged."""
    requests: int
    """Open requests a session may hold."""
    batch: int
    """Advances in one message."""
    context: int
    """Greatest absolute position the draft serves; a request beyond it gets no draft."""


class Welcome(Message, frozen=True, tag="welcome", kw_only=True):
    """Server to verifier: what was agreed."""

    session: int
    """Random, secret to this session, below 2**63; carried by every later message."""
    epoch: int
    """Random per server process, below 2**63: a change means that the server lost its memory."""
    minor: int
    software: str
    row_format: str
    max_depth: int
    limits: SessionLimits
    features: Names = ()
    identity: str
    """`full` when both digests were compared, else `partial`."""
    confidence: bool = False
    """Answers carry confidences."""
    heartbeat_ms: int
    lease_ms: int
    window: int | msgspec.UnsetType | None = msgspec.UNSET
    """Context rows that a proposal can see: the draft's window or the operator's; None for all. Minor 2."""
    retain: str | msgspec.UnsetType = msgspec.UNSET
    """One of `RETAIN`. Minor 2."""


class Refusal(Message, frozen=True, tag="refusal", kw_only=True):
    """Server to verifier: no session. `field`, `ours` and `theirs` name the mismatch."""

    code: str
    detail: str
    field: str = ""
    ours: str = ""
    theirs: str = ""


class Heartbeat(Message, frozen=True, tag="heartbeat", kw_only=True):
    """Verifier to server, every `heartbeat_ms` on the control connection; keeps the lease."""

    session: int
    epoch: int
    serial: int


class StageTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How long one stage of a proposal took, as a histogram."""

    counts: Annotated[tuple[int, ...], Meta(max_length=MAX_LIST)]
    """Steps in each bucket of `figures.BOUNDS_US`, and as the last value those beyond: not cumulative."""
    total_us: int


class Report(Message, frozen=True, tag="report", kw_only=True):
    """Verifier to server, after a heartbeat, since minor 1: figures of the verifier, for operators to see.

    Counts are totals of the verifier's life, so that a lost report costs nothing.
    """

    session: int
    epoch: int
    breaker: str
    requests: int
    """Requests the engine has."""
    behind: int
    """Of those, how many the server has to catch up with."""
    deadline_us: int
    """What the next step would wait at most."""
    counts: Annotated[dict[Name, int], Meta(max_length=MAX_LIST)]
    """By the names of `figures.COUNTS`; a receiver ignores names it does not know."""
    stages: Annotated[dict[Name, StageTimes], Meta(max_length=MAX_LIST)]
    """By the names of `figures.STAGES`; a receiver ignores names it does not know."""
    drafted: Positions
    """By position in the draft: drafts judged by the target that had a token there."""
    accepted: Positions
    """By position in the draft: those whose token there was accepted. As long as `drafted`."""


class Pulse(Message, frozen=True, tag="pulse", kw_only=True):
    """Server to verifier, the answer to a heartbeat."""

    session: int
    epoch: int
    serial: int
    progress: int
    """Engine steps completed; standing still while work is queued means that the engine hangs."""
    queued: int
    """Advances waiting for the engine."""
    phase: str


class Credit(Message, frozen=True, tag="credit", kw_only=True):
    """Server to verifier: bulk bytes whose receive buffers are free again."""

    session: int
    epoch: int
    bytes: int


class Release(Message, frozen=True, tag="release", kw_only=True):
    """Verifier to server: these requests ended. Their blocks stay in the index. Not answered."""

    session: int
    epoch: int
    requests: Ids
    generations: Ids


class Goodbye(Message, frozen=True, tag="goodbye", kw_only=True):
    """Either side ends the session in good order."""

    session: int
    epoch: int
    reason: str = ""


class Failure(Message, frozen=True, tag="failure", kw_only=True):
    """Server to verifier: a message could not be used and no request could be named for it.

    The session lives on unless `fatal`.
    """

    session: int
    epoch: int
    code: str
    detail: str
    fatal: bool = False
