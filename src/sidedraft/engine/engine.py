"""The draft side's engine: advances in, answers out (design section 4).

It owns memory and batching, and knows requests but no sockets and no formulas. One thread calls it; only
`stats` may be called from another.
"""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from sidedraft.device import runtime_for
from sidedraft.drafts.base import Draft
from sidedraft.engine.admission import check_work
from sidedraft.engine.blocks import NULL_BLOCK, BlockPool
from sidedraft.engine.chain import BlockChain
from sidedraft.engine.ingest import Ingest
from sidedraft.engine.launch import Entry, InFlight
from sidedraft.engine.ordering import RequestId, Sequencer
from sidedraft.engine.plan import MemoryPlan
from sidedraft.engine.query import Proposed, Query, QueryPasses
from sidedraft.engine.request import Request
from sidedraft.engine.scratch import Scratch
from sidedraft.engine.stats import EngineCounters, EngineStats
from sidedraft.engine.storage import RowStorage
from sidedraft.engine.table import RowTable
from sidedraft.engine.work import Change, Work
from sidedraft.wire.advance import Answer, Outcome
from sidedraft.wire.errors import Code, WireError

logger = logging.getLogger(__name__)


class Engine:
    """Applies advances to requests' rows and proposes for those that ask.

    Nothing in a work makes a call raise: a work that cannot be applied is answered REFUSED and its request
    is closed. An exception of the draft or the device refuses the batch it happened in.
    """

    def __init__(
        self,
        draft: Draft,
        plan: MemoryPlan,
        *,
        clock: Callable[[], float] = time.monotonic,
        secret: bytes | None = None,
        poison: bool = False,
    ) -> None:
        """`secret`: of the block chain, random if None. `poison`: unwritten memory holds NaN (tests).

        Raises `ValueError` for a family whose rows are not `rowwise`.
        """
        if draft.family.rows != "rowwise":
            raise ValueError(
                f"family: {draft.family.name!r} has {draft.family.rows} rows; "
                "expected rowwise, the only kind that this engine keeps so far"
            )
        shape, device = draft.shape, draft.device
        self.plan = plan
        self.counters = EngineCounters()
        window = b"all" if plan.window is None else str(plan.window).encode()
        self.chain = BlockChain(
            (draft.identity.encode(), window),
            plan.block_size,
            lookahead=draft.family.lookahead,
            secret=secret,
        )
        self._draft = draft
        self._clock = clock
        self._runtime = runtime_for(device)
        self._pool = BlockPool(plan.blocks)
        self._storage = RowStorage(plan, shape, draft.dtype, device, poison=poison)
        self._scratch = Scratch(plan, shape, draft.dtype, device, self._runtime, poison=poison)
        self._ingest = Ingest(draft, self._storage, self._runtime, plan.ingest_bytes)
        self._passes = QueryPasses(draft, plan, self._storage, self._scratch, self._pool, self._runtime)
        self._requests: dict[RequestId, Request] = {}

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
        except Exception as error:  # the draft's or the device's: the peers did nothing wrong
            self._fail(flight, works, error)
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
                self._publish(entry.request, entry.touched, flight.number)
                entry.request.table.let_go_below(self._visible_from(entry.request.committed))
        self._pool.complete(flight.number)
        for proposed in flight.proposed:
            self._give(flight, proposed)
        self.counters.steps += 1
        self.counters.refused += sum(entry.refused for entry in flight.entries)
        return [entry.answer for entry in flight.entries]

    def release(self, owner: int, request: int, generation: int) -> None:
        """The request ended. Its published blocks stay in the index."""
        found = self._requests.get((owner, request))
        if found is not None and found.generation <= generation:
            self._close(found)

    def release_owner(self, owner: int) -> None:
        """Every request of that owner ended."""
        for request in [r for r in self._requests.values() if r.owner == owner]:
            self._close(request)

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
            counters=dataclasses.replace(self.counters),
        )

    # -- applying --------------------------------------------------------------------------------------

    def _enter(self, flight: InFlight, work: Work, dirty: set[Request]) -> None:
        """Apply one work and note what it needs of the device; refuse it, and close its request, if it
        cannot be applied."""
        advance = work.advance
        answer = Answer(advance.request, advance.generation, advance.number, Outcome.INGESTED)
        entry = Entry(work, None, answer)
        flight.entries.append(entry)
        try:
            change = check_work(work, self._draft.shape, self.plan)
            request = self._request(work)
            if request in dirty:  # its rows so far have to be written before their blocks can change
                flight.written += self._ingest.flush()
                dirty.clear()
            self._apply(request, change)
            entry.touched = self._add_rows(request, work, ticket=len(flight.entries) - 1)
        except WireError as error:
            entry.refuse(error)
            stale = self._requests.get((work.owner, advance.request))
            if stale is not None and stale.generation == advance.generation:
                self._close(stale)
            return
        dirty.add(request)
        entry.request = request
        answer.committed = request.committed
        answer.context_start, answer.rows_present = self._span(request)

    def _request(self, work: Work) -> Request:
        """The request that a work belongs to, opened by its first advance."""
        advance, key = work.advance, (work.owner, work.advance.request)
        request = self._requests.get(key)
        if request is not None and advance.generation < request.generation:
            expected = f"at least {request.generation}"
            raise WireError(Code.STALE_GENERATION, "generation", advance.generation, expected)
        if advance.opening is None:
            if request is None or advance.generation > request.generation:
                raise WireError(Code.UNKNOWN_REQUEST, "request", advance.request, "an open request")
            return request
        if request is not None:
            self._close(request)
        if len(self._requests) >= self.plan.max_requests:
            expected = f"at most {self.plan.max_requests} open requests"
            raise WireError(Code.CAPACITY, "request", advance.request, expected)
        table = RowTable(self._pool, self.plan.block_size, self.plan.max_position)
        lookup = advance.opening.lookup and not advance.opening.private
        request = Request(work.owner, advance.request, advance.generation, table, lookup)
        self._requests[key] = request
        self.counters.opened += 1
        return request

    def _apply(self, request: Request, change: Change) -> None:
        """Void the rows of tokens that are no more, and take over published blocks for new ones."""
        table = request.table
        if change.kept < request.committed:
            moved = table.truncate(change.kept)
            if moved is not None:
                self._storage.copy(*moved)
        request.committed = change.end
        table.reach(change.end)
        request.keys[change.first_block :] = change.keys
        if not request.lookup:
            return
        lowest = self._visible_from(change.end) // self.plan.block_size
        for index in range(max(change.first_block, lowest), len(request.keys)):
            if table.blocks[index] == NULL_BLOCK:
                block = self._pool.find(request.keys[index])
                if block is not None:
                    table.adopt(index, block)
                    self.counters.rows_restored += self.plan.block_size

    def _add_rows(self, request: Request, work: Work, ticket: int) -> range:
        """Find room for the rows that came and are absent. Returns the blocks they touch."""
        advance = work.advance
        end = min(advance.rows_at + advance.row_count, self.plan.max_position)
        received, usable = advance.row_count, max(0, end - advance.rows_at)
        self.counters.rows_received += received
        if advance.rows is None or usable == 0:
            self.counters.rows_without_room += received
            return range(0)
        absent = int(np.count_nonzero(request.table.slots[advance.rows_at : end] == 0))
        slots = request.table.claim(advance.rows_at, end)
        added = self._ingest.add(work.row_format, advance.rows[:usable], advance.rows_at, slots, ticket)
        self.counters.rows_dropped += usable - absent
        self.counters.rows_without_room += absent - added + received - usable
        size = self.plan.block_size
        return range(advance.rows_at // size, (end - 1) // size + 1)

    def _visible_from(self, anchor: int) -> int:
        """First position that a query block at `anchor` can see."""
        visible = self.plan.context_limit
        return max(0, anchor - visible) if self.plan.window is not None else 0

    def _span(self, request: Request) -> tuple[int, int]:
        """(first present position a proposal would be given, rows present from there on)."""
        low = max(self._visible_from(request.committed), request.committed - self.plan.context_limit)
        return request.table.span(low, request.committed)

    # -- proposing -------------------------------------------------------------------------------------

    def _queries(self, flight: InFlight) -> list[Query]:
        """The proposals to make; the others' answers say why not."""
        newest = {entry.request: ticket for ticket, entry in enumerate(flight.entries) if entry.request}
        now = self._clock()
        queries = []
        for ticket, entry in enumerate(flight.entries):
            advance, request = entry.work.advance, entry.request
            if request is None or advance.depth == 0:
                continue
            block_end = request.committed + self._draft.shape.query_rows(advance.depth)
            if request.closed or newest[request] != ticket:
                entry.answer.outcome = Outcome.SUPERSEDED
                self.counters.superseded += 1
            elif entry.work.expires is not None and entry.work.expires <= now:
                entry.answer.outcome = Outcome.EXPIRED
                self.counters.expired += 1
            elif block_end > self.plan.max_position:
                entry.answer.outcome = Outcome.NO_DRAFT
            else:
                start, end = entry.answer.context_start, request.committed
                queries.append(Query(ticket, request.table, start, end, advance.next_token, advance.depth))
        return queries

    def _give(self, flight: InFlight, proposed: Proposed) -> None:
        """Put the tokens of a forward into the answers; those that cannot be trusted are no drafts."""
        tokens = proposed.tokens.numpy().astype(np.int32)
        known = ((tokens >= 0) & (tokens < self._draft.shape.vocab_size)).all(axis=1)
        usable = known & proposed.finite.numpy()
        confidence = None if proposed.confidence is None else proposed.confidence.float().numpy()
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
            self.counters.proposals += 1

    # -- completing ------------------------------------------------------------------------------------

    def _publish(self, request: Request, touched: range, launch: int) -> None:
        """Let others find the blocks that this launch completed."""
        for index in touched:
            if index >= len(request.keys):
                return
            block = int(request.table.blocks[index])
            if block == NULL_BLOCK or self._pool.is_published(block) or self._pool.written[block] > launch:
                continue
            if request.table.is_full(index):
                if self._pool.publish(block, request.keys[index]):
                    self.counters.blocks_published += 1
                else:
                    self.counters.collisions += 1

    def _refuse_unusable_rows(self, flight: InFlight) -> None:
        """Close the requests whose rows came out not finite, before anything of them is published."""
        for written in flight.written:
            bad = written.tickets[~written.finite.numpy()]
            for ticket in np.unique(bad):
                entry = flight.entries[ticket]
                entry.refuse(WireError(Code.BAD_ROWS, "rows", "not finite", "finite aux states"))
                if entry.request is not None:
                    self._close(entry.request)

    def _fail(self, flight: InFlight, works: Sequence[Work], error: Exception) -> None:
        """An exception ended the launch: what it was to write cannot be relied on."""
        logger.exception("launch %d failed; its %d advances are refused", flight.number, len(works))
        self.counters.failures += 1
        self._ingest.discard()
        flight.proposed.clear()
        refusal = WireError(Code.INTERNAL, "engine", type(error).__name__, "no exception")
        for entry in flight.entries:
            entry.refuse(refusal)
            if entry.request is not None:
                self._close(entry.request)
        for work in works[len(flight.entries) :]:
            advance = work.advance
            entry = Entry(
                work, None, Answer(advance.request, advance.generation, advance.number, Outcome.REFUSED)
            )
            entry.refuse(refusal)
            flight.entries.append(entry)
            self.release(work.owner, advance.request, advance.generation)

    def _close(self, request: Request) -> None:
        if self._requests.get((request.owner, request.id)) is request:
            del self._requests[request.owner, request.id]
        if not request.closed:
            request.close()
