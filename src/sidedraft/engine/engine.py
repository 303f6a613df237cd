"""The draft side's engine: advances in, answers out (design section 4).

It owns memory and batching, and knows requests but no sockets and no formulas. One thread calls it; only
`stats` may be called from another.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from sidedraft.device import runtime_for
from sidedraft.drafts.base import Draft
from sidedraft.engine.admission import check_format, check_work
from sidedraft.engine.blocks import BlockPool
from sidedraft.engine.chain import BlockChain
from sidedraft.engine.ingest import Ingest
from sidedraft.engine.launch import Entry, InFlight
from sidedraft.engine.ordering import Sequencer
from sidedraft.engine.plan import MemoryPlan
from sidedraft.engine.query import Proposed, Query, QueryPasses
from sidedraft.engine.request import Request
from sidedraft.engine.requests import OpenRequests
from sidedraft.engine.scratch import Scratch
from sidedraft.engine.stats import EngineCounters, EngineStats
from sidedraft.engine.storage import RowStorage
from sidedraft.engine.work import Work
from sidedraft.wire.advance import Answer, Outcome
from sidedraft.wire.errors import Code, WireError


class Engine:
    """Applies advances to requests' rows and proposes for those that ask.

    Nothing in a work makes a call raise: a work that cannot be applied is answered REFUSED and its request
    is closed. An exception of the draft or the device closes the requests of its batch and is raised.
    """

    def __init__(
        self,
        draft: Draft,
        plan: MemoryPlan,
        *,
        clock: Callable[[], float] = time.monotonic,
        secret: bytes | None = None,
        poison: bool = False,
        retain: str = "all",
    ) -> None:
        """`secret`: of the block chain, random if None. `poison`: unwritten memory holds NaN (tests).
        `retain`: `all` rows that come are kept for other requests, or those alone that their own request's
        proposals can still see (`window`).

        Raises `ValueError` for a family whose rows are not `rowwise`.
        """
        if draft.family.rows != "rowwise":
            raise ValueError(
                f"family: {draft.family.name!r} has {draft.family.rows} rows; "
                "expected rowwise, the only kind that this engine keeps so far"
            )
        shape = draft.shape
        self.plan = plan
        identity = (draft.identity.encode(), str(plan.window).encode())
        lookahead = draft.family.lookahead
        self.chain = BlockChain(identity, plan.block_size, lookahead=lookahead, secret=secret)
        self._shape = shape
        self._projection = None if draft.projection is None else draft.projection.facts
        self._clock = clock
        self._counters = EngineCounters()
        self._runtime = runtime_for(draft.device)
        self._pool = BlockPool(plan.blocks)
        self._storage = RowStorage(plan, draft.dtype, self._runtime, poison=poison)
        self._scratch = Scratch(plan, shape, draft.dtype, self._runtime, poison=poison)
        self._ingest = Ingest(draft, self._storage, self._runtime, plan.ingest_bytes)
        self._passes = QueryPasses(draft, plan, self._storage, self._scratch, self._pool, self._runtime)
        self._requests = OpenRequests(plan, self._pool, self._storage, self._counters, retain=retain)

    @property
    def allocated_bytes(self) -> int:
        """Device memory held for rows: pool and scratch, at most the plan's `kv_memory`."""
        return self._storage.nbytes + self._scratch.nbytes

    def sequencer(self, *, held: int = 256) -> Sequencer:
        """The token side that feeds this engine, for the thread that receives."""
        plan = self.plan
        return Sequencer(
            self.chain, max_requests=plan.max_requests, max_position=plan.max_position, held=held
        )

    def step(self, works: Sequence[Work]) -> list[Answer]:
        """Apply works in order, propose, and wait for it: one answer a work, in order."""
        return self.finish(self.launch(works))

    @torch.inference_mode()
    def launch(self, works: Sequence[Work]) -> InFlight:
        """Apply works (as released by a `Sequencer`, in order) and give their computing to the device."""
        self._pool.launched += 1
        flight = InFlight(self._pool.launched)
        try:
            started = self._clock()
            dirty: set[Request] = set()
            for work in works:
                self._enter(flight, work, dirty)
            flight.written += self._ingest.flush()
            ingested = self._clock()
            flight.proposed = self._passes.run(self._queries(flight))
            flight.ingest_seconds, flight.propose_seconds = ingested - started, self._clock() - ingested
        except BaseException:
            self._abandon(works)
            raise
        flight.mark = self._runtime.mark()
        return flight

    def finish(self, flight: InFlight) -> list[Answer]:
        """Wait for a launch, publish what it completed, and answer. Launches finish in order."""
        if flight.number != self._pool.finished + 1:
            raise ValueError(f"launch {flight.number} cannot finish after launch {self._pool.finished}")
        if flight.mark is not None:
            flight.mark.wait()
        self._refuse_unusable_rows(flight)
        for entry in flight.entries:
            if entry.request is not None and not entry.request.closed:
                self._requests.complete(entry.request, entry.touched, flight.number)
        self._pool.complete(flight.number)
        for proposed in flight.proposed:
            self._give(flight, proposed)
        self._counters.steps += 1
        self._counters.refused += sum(entry.refused for entry in flight.entries)
        return [entry.answer for entry in flight.entries]

    def release(self, owner: int, request: int, generation: int) -> None:
        """The request ended. Its published blocks stay in the index."""
        found = self._requests.find(owner, request)
        if found is not None and found.generation <= generation:
            self._requests.close(found)

    def release_owner(self, owner: int) -> None:
        """Every request of that owner ended."""
        for request in self._requests.of(owner):
            self._requests.close(request)

    def stats(self) -> EngineStats:
        pool = self._pool
        free, kept, pinned = pool.free, pool.kept, pool.pinned
        return EngineStats(
            requests=len(self._requests),
            blocks_total=pool.total,
            blocks_free=free,
            blocks_kept=kept,
            blocks_pinned=pinned,
            blocks_held=pool.total - free - kept - pinned,
            index=pool.published,
            evictions=pool.evictions,
            rows_computed=self._ingest.computed,
            forwards=self._passes.forwards,
            counters=dataclasses.replace(self._counters),
        )

    def _enter(self, flight: InFlight, work: Work, dirty: set[Request]) -> None:
        """Apply one work and collect its rows; refuse it, and close its request, if it cannot be applied.

        `dirty` are the requests with rows collected and not written.
        """
        advance, requests = work.advance, self._requests
        entry = Entry(work, Answer(advance.request, advance.generation, advance.number, Outcome.INGESTED))
        flight.entries.append(entry)
        try:
            change = check_work(work, self._shape, self.plan, self._projection)
            request = requests.enter(work)
            if request in dirty:  # its rows so far have to be written before their blocks can change
                flight.written += self._ingest.flush()
                dirty.clear()
            requests.apply(request, change)
            if advance.opening is not None:
                requests.await_prefix(request, advance.first)
        except WireError as error:
            entry.refuse(error)
            stale = requests.find(work.owner, advance.request)
            if stale is not None and stale.generation == advance.generation:
                requests.close(stale)
            return
        entry.request = request
        if advance.rows is not None and len(advance.rows):
            slots = requests.claim(request, work)
            rows, row_format = advance.rows[: len(slots)], check_format(work, self._projection)
            self._ingest.add(row_format, rows, advance.rows_at, slots, len(flight.entries) - 1)
            dirty.add(request)
            size = self.plan.block_size
            entry.touched = range(advance.rows_at // size, -(-(advance.rows_at + len(slots)) // size))
        entry.answer.committed = request.committed
        entry.answer.context_start, entry.answer.rows_present = requests.context(request)

    def _queries(self, flight: InFlight) -> list[Query]:
        """The proposals to make; the others' answers say why not."""
        newest = {entry.request: ticket for ticket, entry in enumerate(flight.entries)}
        now = self._clock()
        queries = []
        for ticket, entry in enumerate(flight.entries):
            work, advance, request = entry.work, entry.work.advance, entry.request
            if request is None or advance.depth == 0:
                continue
            block_end = request.committed + self._shape.query_rows(advance.depth)
            if request.closed or newest[request] != ticket:
                entry.answer.outcome = Outcome.SUPERSEDED
                self._counters.superseded += 1
            elif work.expires is not None and work.expires <= now:
                entry.answer.outcome = Outcome.EXPIRED
                self._counters.expired += 1
            elif block_end > self.plan.max_position:
                entry.answer.outcome = Outcome.NO_DRAFT
            else:
                start, end = entry.answer.context_start, request.committed
                queries.append(Query(ticket, request.table, start, end, advance.next_token, advance.depth))
        return queries

    def _give(self, flight: InFlight, proposed: Proposed) -> None:
        """Put the tokens of a forward into the answers; those that cannot be trusted are no drafts."""
        tokens = proposed.tokens.numpy().astype(np.int32)
        known = ((tokens >= 0) & (tokens < self._shape.vocab_size)).all(axis=1)
        usable = known & proposed.finite.numpy()
        confidence = None if proposed.confidence is None else proposed.confidence.numpy()
        for row, ticket in enumerate(proposed.tickets):
            entry = flight.entries[ticket]
            if entry.refused:
                continue
            if not usable[row]:
                entry.answer.outcome = Outcome.NO_DRAFT
                continue
            entry.answer.outcome = Outcome.DRAFTED
            entry.answer.tokens = tokens[row]
            entry.answer.confidence = None if confidence is None else confidence[row]
            self._counters.proposals += 1

    def _refuse_unusable_rows(self, flight: InFlight) -> None:
        """Close the requests whose rows came out not finite, before anything of them is published."""
        for written in flight.written:
            for ticket in np.unique(written.tickets[~written.finite.numpy()]):
                entry = flight.entries[ticket]
                entry.refuse(WireError(Code.BAD_ROWS, "rows", "not finite", "finite aux states"))
                if entry.request is not None:
                    self._requests.close(entry.request)

    def _abandon(self, works: Sequence[Work]) -> None:
        """A launch was broken off: what it was to write is not there, so that its requests end.

        Its number is used again; until that launch completes, the blocks it used stay pinned.
        """
        self._ingest.discard()
        for work in works:
            self.release(work.owner, work.advance.request, work.advance.generation)
        self._pool.launched -= 1
