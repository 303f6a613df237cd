"""What a run measures: sizes and counts, cut to what the server allows."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sidedraft.settings import KIB, MIB
from sidedraft.wire.agreement import Agreement

ACCEPTED = 3
"""Rows that a request brings with each proposal."""

SHARE = 4
"""Of a running server's requests, at most one in so many is used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Sizes in bytes; contexts and depths in tokens."""

    rounds: int
    """Samples of each latency."""
    prompts: int
    """Samples of each ingest."""
    sizes: tuple[int, ...]
    prompt: int
    """Bytes of a prompt's rows in bf16."""
    contexts: tuple[int, ...]
    batches: tuple[int, ...]
    depths: tuple[int, ...]
    """Empty: 1 and the greatest that was agreed."""

    def within(self, agreement: Agreement, *, polite: bool) -> Plan:
        """`polite`: others use the server too."""
        requests = max(1, agreement.limits.requests // (SHARE if polite else 1) // max(1, len(self.contexts)))
        room = min(agreement.limits.context, agreement.max_position) - agreement.max_depth - ACCEPTED - 1
        depths = self.depths or (1, agreement.max_depth)
        return replace(
            self,
            contexts=_at_most(self.contexts, room),
            batches=_at_most(self.batches, requests),
            depths=_at_most(depths, agreement.max_depth),
        )


def _at_most(values: tuple[int, ...], most: int) -> tuple[int, ...]:
    return tuple(sorted({max(1, min(value, most)) for value in values}))


FULL = Plan(
    rounds=100,
    prompts=7,
    sizes=(0, 64 * KIB, 256 * KIB, 1 * MIB),
    prompt=32 * MIB,
    contexts=(128, 1024),
    batches=(1, 8),
    depths=(),
)

QUICK = replace(
    FULL, rounds=20, prompts=3, sizes=(0, 256 * KIB), prompt=8 * MIB, contexts=(128,), batches=(1, 4)
)
