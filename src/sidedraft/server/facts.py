"""What a loaded server states: to verifiers in the handshake, to operators in the status."""

from __future__ import annotations

from typing import Any

from sidedraft.server.dispatch import SOFTWARE
from sidedraft.server.loader import Loaded, name_of
from sidedraft.settings import ServerSettings
from sidedraft.wire.handshake import ServerFacts
from sidedraft.wire.messages import DraftFacts, SessionLimits


def server_facts(settings: ServerSettings, loaded: Loaded, epoch: int) -> ServerFacts:
    """The server's side of every handshake."""
    shape, plan, limits = loaded.draft.shape, loaded.engine.plan, settings.wire()
    projection = loaded.draft.projection
    return ServerFacts(
        software=SOFTWARE,
        epoch=epoch,
        target=loaded.target,
        draft=DraftFacts(
            family=loaded.draft.family.name, layout=shape.layout.value, max_depth=shape.max_depth
        ),
        max_depth=plan.max_depth,
        limits=SessionLimits(
            control_payload=limits.control_payload,
            bulk_payload=limits.bulk_payload,
            bulk_credit=limits.bulk_credit,
            requests=limits.requests,
            batch=limits.batch,
            context=plan.max_position,
        ),
        projection=None if projection is None else projection.facts,
        namespaces=frozenset(settings.namespaces),
        confidence=shape.has_confidence,
        strict_identity=settings.strict_identity,
        window=plan.reach,
        retain=settings.retain,
        heartbeat_ms=settings.heartbeat_ms,
        lease_ms=settings.lease_ms,
    )


def status_facts(settings: ServerSettings, loaded: Loaded) -> dict[str, Any]:
    """What the status shows of a loaded server and what does not change."""
    draft, plan, shape = loaded.draft, loaded.engine.plan, loaded.draft.shape
    return {
        "device": str(draft.device),
        "dtype": name_of(draft.dtype),
        "family": draft.family.name,
        "draft": {
            "layout": shape.layout.value,
            "layers": shape.layers,
            "taps": list(shape.taps),
            "row_width": shape.row_width,
            "vocab_size": shape.vocab_size,
            "draft_vocab_size": shape.draft_vocab_size,
            "confidence": shape.has_confidence,
            "identity": draft.identity,
            "weight_bytes": draft.weight_bytes(),
        },
        "target": {
            "hidden_size": loaded.target.hidden_size,
            "model_digest": loaded.target.model_digest,
            "vocab_digest": loaded.target.vocab_digest,
        },
        "limits": {
            "max_depth": plan.max_depth,
            "max_requests": plan.max_requests,
            "max_position": plan.max_position,
            "window": plan.window,
            "context": plan.context_limit,
            "retain": settings.retain,
            "namespaces": list(settings.namespaces),
            "lease_ms": settings.lease_ms,
        },
        "memory": {
            "kv_memory": plan.kv_memory,
            "pool_bytes": plan.pool_bytes,
            "scratch_bytes": plan.scratch_bytes,
            "pool_rows": plan.pool_rows,
            "block_size": plan.block_size,
            "allocated_bytes": loaded.engine.allocated_bytes,
        },
    }
