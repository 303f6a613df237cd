"""Query passes: which proposals share a forward, and running it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from sidedraft.device import Runtime
from sidedraft.drafts.base import Draft
from sidedraft.engine.blocks import BlockPool
from sidedraft.engine.buckets import batch_bucket, context_bucket
from sidedraft.engine.plan import MemoryPlan
from sidedraft.engine.scratch import Scratch
from sidedraft.engine.storage import RowStorage
from sidedraft.engine.table import RowTable

SPREAD = 4
"""Contexts that share a forward differ by at most this factor: the shorter ones are padded."""

SHORT = 1024
"""Contexts below this many rows always may share: padding them costs less than a forward of their own."""


@dataclass(slots=True)
class Query:
    """One proposal to make."""

    ticket: int
    table: RowTable
    start: int
    """First position of the context, which ends before the anchor."""
    anchor_position: int
    anchor: int
    depth: int

    @property
    def rows(self) -> int:
        return self.anchor_position - self.start


@dataclass(slots=True)
class Proposed:
    """The outcome of one forward, for `tickets` in order; on the host once the launch is complete."""

    tickets: list[int]
    tokens: Tensor
    """int64 [>= len(tickets), depth]"""
    finite: Tensor
    """bool [>= len(tickets)]"""
    confidence: Tensor | None
    """float32 [>= len(tickets), depth]"""


def share_forwards(queries: list[Query], plan: MemoryPlan, query_rows: int) -> list[list[Query]]:
    """Cut queries of one depth into groups that fit the scratch and are not padded out of proportion."""
    groups: list[list[Query]] = []
    group: list[Query] = []
    longest = columns = 0
    for query in sorted(queries, key=lambda q: q.rows, reverse=True):
        batch = batch_bucket(len(group) + 1)
        fits = batch <= plan.max_batch and batch * columns <= plan.scratch_columns
        if not group or not fits or longest > max(SHORT, SPREAD * query.rows):
            longest = query.rows
            columns = context_bucket(longest, plan.context_limit) + query_rows
            group = []
            groups.append(group)
        group.append(query)
    return groups


class QueryPasses:
    """Runs query passes over the scratch."""

    def __init__(
        self,
        draft: Draft,
        plan: MemoryPlan,
        storage: RowStorage,
        scratch: Scratch,
        pool: BlockPool,
        runtime: Runtime,
    ) -> None:
        self._draft = draft
        self._plan = plan
        self._storage = storage
        self._scratch = scratch
        self._pool = pool
        self._runtime = runtime
        self.forwards = 0

    def run(self, queries: list[Query]) -> list[Proposed]:
        """Propose for every query; those of equal depth and similar context share forwards."""
        by_depth: dict[int, list[Query]] = {}
        for query in queries:
            by_depth.setdefault(query.depth, []).append(query)
        return [
            self._forward(group, depth)
            for depth, same in by_depth.items()
            for group in share_forwards(same, self._plan, self._draft.shape.query_rows(depth))
        ]

    def _forward(self, group: list[Query], depth: int) -> Proposed:
        size, block = self._plan.block_size, self._draft.shape.query_rows(depth)
        batch = batch_bucket(len(group))
        columns = context_bucket(group[0].rows, self._plan.context_limit) + block
        slots, heads = self._scratch.begin(batch, columns)
        for row, query in enumerate(group):
            start, end = query.start, query.anchor_position
            slots[row, : end - start] = query.table.slots[start:end]
            heads[:, row] = (start, end, query.anchor)
            self._pool.use(query.table.blocks[start // size : -(-end // size)])
        context, anchors, positions = self._scratch.gather(self._storage, batch, columns, block)
        proposal = self._draft.propose(anchors, positions, depth, context)
        self.forwards += 1
        fetch, confidence = self._runtime.fetch, proposal.confidence
        return Proposed(
            [query.ticket for query in group],
            fetch(proposal.tokens),
            fetch(proposal.finite),
            None if confidence is None else fetch(confidence),
        )
