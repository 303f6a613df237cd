"""The handshake: pure functions from what both ends say to what holds for the session (design section 5)."""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from msgspec import UNSET

from sidedraft.wire import messages as m
from sidedraft.wire.agreement import Agreement
from sidedraft.wire.errors import Code, WireError, shorten
from sidedraft.wire.identity import target_key
from sidedraft.wire.limits import ALIGNMENT, MAX_DETAIL, MAX_ID
from sidedraft.wire.rows import KINDS, Projection, RowFormat, find_format
from sidedraft.wire.validate import check
from sidedraft.wire.versions import ADDED, check_agreed, common_features, common_minor


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What a server brings to every handshake."""

    software: str
    epoch: int
    """`random_id()`, once a process."""
    target: m.TargetFacts
    """The target that the draft was trained for, as far as the server knows it."""
    draft: m.DraftFacts
    max_depth: int
    """Greatest depth served: the draft's own, or less by the operator's word."""
    limits: m.SessionLimits
    row_formats: frozenset[str] = frozenset(KINDS)
    """Kinds of row formats that it reads."""
    projection: Projection | None = None
    """The draft's own; without one no projected rows are taken."""
    features: tuple[str, ...] = ()
    namespaces: frozenset[str] | None = frozenset({"default"})
    """Names this peer may use; None allows any."""
    confidence: bool = False
    """The draft estimates its acceptance."""
    strict_identity: bool = False
    window: int | None = None
    """Context rows that a proposal can see; None for all."""
    retain: str = "window"
    """One of `messages.RETAIN`."""
    heartbeat_ms: int = 200
    lease_ms: int = 5000
    minors: tuple[int, int] = (m.MINOR_LOWEST, m.MINOR_HIGHEST)


def random_id() -> int:
    """A session or an epoch: unguessable, above 0 and below 2**63."""
    return 1 + secrets.randbelow(MAX_ID)


def negotiate(hello: m.Hello, facts: ServerFacts, session: int) -> Agreement | m.Refusal:
    """The server's verdict on a hello that its codec accepted; `session` is a fresh `random_id()`.

    What must be equal is compared first, and everything that differs is told at once; the rest is chosen
    from what both offer.
    """
    minor = common_minor(facts.minors, hello.minors)
    if hello.protocol != m.PROTOCOL or minor is None:
        ours, theirs = _version(m.PROTOCOL, facts.minors), _version(hello.protocol, hello.minors)
        return refusal(Code.VERSION, "protocol", ours, theirs)
    if facts.namespaces is not None and hello.namespace not in facts.namespaces:
        return refusal(Code.NAMESPACE, "namespace", ", ".join(sorted(facts.namespaces)), hello.namespace)
    differences = _differences(hello, facts)
    if differences:
        return _mismatch(differences)
    identity = _identity(hello.target, facts.target)
    if identity != "full" and (hello.strict_identity or facts.strict_identity):
        return refusal(Code.IDENTITY, "digests", _known(facts.target), _known(hello.target))
    row_format = _row_format(hello, facts)
    if row_format is None:
        ours, theirs = ", ".join(sorted(facts.row_formats)), ", ".join(hello.row_formats)
        return refusal(Code.MISMATCH, "row_formats", ours, theirs)
    width = len(facts.target.taps) * facts.target.hidden_size
    # One row with its token must fit into a bulk frame, or no context could ever be sent.
    needed = ALIGNMENT + row_format.row_bytes(width)
    if needed > facts.limits.bulk_payload:
        return refusal(
            Code.TOO_LARGE, "bulk_payload", str(facts.limits.bulk_payload), f"{needed} for one row"
        )
    return Agreement(
        session=session,
        epoch=facts.epoch,
        minor=minor,
        features=common_features(facts.features, hello.features),
        namespace=hello.namespace,
        row_format=row_format,
        row_width=width,
        target_key=target_key(hello.target),
        vocab_size=facts.target.vocab_size,
        max_depth=min(hello.max_depth, facts.max_depth, hello.draft.max_depth, facts.draft.max_depth),
        max_position=hello.max_position,
        limits=facts.limits,
        identity=identity,
        confidence=facts.confidence,
        heartbeat_ms=facts.heartbeat_ms,
        lease_ms=facts.lease_ms,
        window=facts.window if _tells_window(minor) else None,
        retain=facts.retain if _tells_window(minor) else "window",
    )


def welcome(agreement: Agreement, software: str) -> m.Welcome:
    """The message that tells the verifier what was agreed."""
    return m.Welcome(
        session=agreement.session,
        epoch=agreement.epoch,
        minor=agreement.minor,
        software=software,
        row_format=agreement.row_format.name,
        max_depth=agreement.max_depth,
        limits=agreement.limits,
        features=agreement.features,
        identity=agreement.identity,
        confidence=agreement.confidence,
        heartbeat_ms=agreement.heartbeat_ms,
        lease_ms=agreement.lease_ms,
        window=agreement.window if _tells_window(agreement.minor) else UNSET,
        retain=agreement.retain if _tells_window(agreement.minor) else UNSET,
    )


def check_welcome(hello: m.Hello, answer: m.Welcome) -> Agreement:
    """The agreement as the verifier holds it: equal to the server's.

    Raises:
        WireError: the server chose what the hello did not offer.
    """
    check(answer)
    lowest, highest = hello.minors
    _offered(lowest <= answer.minor <= highest, "minor", answer.minor, f"{lowest} to {highest}")
    check_agreed(answer, answer.minor, answer.features)
    row_format = find_format(answer.row_format) if answer.row_format in hello.row_formats else None
    if row_format is None:
        raise _not_offered("row_format", answer.row_format, f"one of {', '.join(hello.row_formats)}")
    depth = min(hello.max_depth, hello.draft.max_depth)
    _offered(answer.max_depth <= depth, "max_depth", answer.max_depth, f"at most {depth}")
    extra = [name for name in answer.features if name not in hello.features]
    _offered(not extra, "features", extra, f"some of {', '.join(hello.features) or 'none'}")
    strict = hello.strict_identity and answer.identity != "full"
    _offered(not strict, "identity", answer.identity, "full, as strict identity demands")
    return Agreement(
        session=answer.session,
        epoch=answer.epoch,
        minor=answer.minor,
        features=answer.features,
        namespace=hello.namespace,
        row_format=row_format,
        row_width=len(hello.target.taps) * hello.target.hidden_size,
        target_key=target_key(hello.target),
        vocab_size=hello.target.vocab_size,
        max_depth=answer.max_depth,
        max_position=hello.max_position,
        limits=answer.limits,
        identity=answer.identity,
        confidence=answer.confidence,
        heartbeat_ms=answer.heartbeat_ms,
        lease_ms=answer.lease_ms,
        window=None if answer.window is UNSET else answer.window,
        retain="window" if answer.retain is UNSET else answer.retain,
    )


def refusal(code: Code, field: str, ours: str, theirs: str, detail: str = "") -> m.Refusal:
    """A refusal that names both values, cut to what a message may carry."""
    words = detail or f"{field}: the server has {ours}, the verifier {theirs}"
    return m.Refusal(
        code=code.value,
        detail=shorten(words, MAX_DETAIL),
        field=field,
        ours=shorten(ours, MAX_DETAIL),
        theirs=shorten(theirs, MAX_DETAIL),
    )


def _tells_window(minor: int) -> bool:
    return ADDED[m.Welcome]["window"].allowed(minor, ())


def _row_format(hello: m.Hello, facts: ServerFacts) -> RowFormat | None:
    """The first of the verifier's formats that the server reads; projected rows of another projection than
    the server's draft has are of no use to it."""
    for found in map(find_format, hello.row_formats):
        if found is None or found.kind not in facts.row_formats:
            continue
        if found.projection in (None, facts.projection):
            return found
    return None


def _differences(hello: m.Hello, facts: ServerFacts) -> list[tuple[str, str, str]]:
    """(field, server's, verifier's) of everything that must be equal and is not."""
    pairs: list[tuple[str, object, object]] = [
        ("taps", list(facts.target.taps), list(hello.target.taps)),
        ("stream", facts.target.stream, hello.target.stream),
        ("hidden_size", facts.target.hidden_size, hello.target.hidden_size),
        ("vocab_size", facts.target.vocab_size, hello.target.vocab_size),
        ("family", facts.draft.family, hello.draft.family),
        ("layout", facts.draft.layout, hello.draft.layout),
    ]
    for name in ("model_digest", "vocab_digest"):
        ours, theirs = getattr(facts.target, name), getattr(hello.target, name)
        if ours is not None and theirs is not None:
            pairs.append((name, ours, theirs))
    return [(field, str(ours), str(theirs)) for field, ours, theirs in pairs if ours != theirs]


def _mismatch(differences: list[tuple[str, str, str]]) -> m.Refusal:
    words = "; ".join(
        f"{field}: the server has {ours}, the verifier {theirs}" for field, ours, theirs in differences
    )
    return refusal(Code.MISMATCH, *differences[0], detail=words)


def _identity(one: m.TargetFacts, other: m.TargetFacts) -> str:
    """`full` when both digests were known to both, and so compared."""
    digests = (one.model_digest, one.vocab_digest, other.model_digest, other.vocab_digest)
    return "partial" if None in digests else "full"


def _known(target: m.TargetFacts) -> str:
    names = [n for n in ("model_digest", "vocab_digest") if getattr(target, n) is not None]
    return " and ".join(names) or "neither digest"


def _version(protocol: int, minors: tuple[int, int]) -> str:
    return f"{protocol}, minors {minors[0]} to {minors[1]}"


def _offered(passed: bool, field: str, value: object, expected: str) -> None:
    if not passed:
        raise _not_offered(field, value, expected)


def _not_offered(field: str, value: object, expected: str) -> WireError:
    return WireError(Code.BAD_FIELD, f"welcome.{field}", value, expected)
