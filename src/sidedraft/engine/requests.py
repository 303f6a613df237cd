"""The open requests, and what an advance does to the rows they hold."""

from __future__ import annotations

import numpy as np

from sidedraft.engine.blocks import NULL_BLOCK, BlockPool
from sidedraft.engine.ordering import RequestId
from sidedraft.engine.plan import MemoryPlan
from sidedraft.engine.request import Request
from sidedraft.engine.stats import EngineCounters
from sidedraft.engine.storage import RowStorage
from sidedraft.engine.table import NO_SLOTS, RowTable, Slots
from sidedraft.engine.wanted import WantedBlocks
from sidedraft.engine.work import Change, Work
from sidedraft.wire.errors import Code, WireError


class OpenRequests:
    """Opens, changes and closes requests; at most `plan.max_requests` at once."""

    def __init__(
        self,
        plan: MemoryPlan,
        pool: BlockPool,
        storage: RowStorage,
        counters: EngineCounters,
        *,
        retain: str = "all",
    ) -> None:
        """`retain`: see `Engine`."""
        self._plan = plan
        self._retain = retain
        self._pool = pool
        self._storage = storage
        self._counters = counters
        self._open: dict[RequestId, Request] = {}
        self._wanted = WantedBlocks()

    def __len__(self) -> int:
        return len(self._open)

    def find(self, owner: int, request: int) -> Request | None:
        return self._open.get((owner, request))

    def of(self, owner: int) -> list[Request]:
        """The open requests of one owner."""
        return [request for request in self._open.values() if request.owner == owner]

    def enter(self, work: Work) -> Request:
        """The request that a work belongs to, opened by its first advance.

        Raises `WireError`: stale generation, unknown request, capacity.
        """
        advance, key = work.advance, (work.owner, work.advance.request)
        request = self._open.get(key)
        if request is not None and advance.generation < request.generation:
            expected = f"at least {request.generation}"
            raise WireError(Code.STALE_GENERATION, "generation", advance.generation, expected)
        if advance.opening is None:
            if request is None or advance.generation > request.generation:
                raise WireError(Code.UNKNOWN_REQUEST, "request", advance.request, "an open request")
            return request
        if request is not None:
            self.close(request)
        if len(self._open) >= self._plan.max_requests:
            expected = f"at most {self._plan.max_requests} open requests"
            raise WireError(Code.CAPACITY, "request", advance.request, expected)
        table = RowTable(self._pool, self._plan.block_size, self._plan.max_position)
        lookup = advance.opening.lookup and not advance.opening.private
        request = self._open[key] = Request(work.owner, advance.request, advance.generation, table, lookup)
        self._counters.opened += 1
        return request

    def apply(self, request: Request, change: Change) -> None:
        """Void the rows of tokens that are no more, and take over published blocks for new ones.

        Raises `WireError` (gap) when the change was made to more tokens than the request has here.
        """
        if change.kept > request.committed:
            expected = f"at most the committed end {request.committed}"
            raise WireError(Code.GAP, "first", change.kept, expected)
        if change.kept < request.committed:
            moved = request.table.truncate(change.kept)
            if moved is not None:
                self._storage.copy(*moved)
        request.committed = change.end
        request.table.reach(change.end)
        request.keys[change.first_block :] = change.keys
        if request.lookup:
            self._restore(request, change.first_block)

    def await_prefix(self, request: Request, end: int) -> None:
        """Take over the blocks below `end` that are not there when somebody publishes them."""
        if request.lookup:
            for index in range(self._lowest(request), min(end // self._plan.block_size, len(request.keys))):
                if request.table.blocks[index] == NULL_BLOCK:
                    self._wanted.want(request, request.keys[index], index)

    def claim(self, request: Request, work: Work) -> Slots:
        """Slots for the rows that came, up to the draft's last position; 0 where a row is not wanted."""
        advance, table, counters = work.advance, request.table, self._counters
        low, end = advance.rows_at, min(advance.rows_at + advance.row_count, self._plan.max_position)
        counters.rows_received += advance.row_count
        if end <= low:
            counters.rows_without_room += advance.row_count
            return NO_SLOTS
        slots = np.zeros(end - low, dtype=np.int32)
        seen = min(end, max(low, self._kept_from(request)))
        absent = int(np.count_nonzero(table.slots[seen:end] == 0))
        if absent:
            slots[seen - low :] = table.claim(seen, end)
        counters.rows_unseen += seen - low
        counters.rows_dropped += end - seen - absent
        beyond = advance.row_count - len(slots)
        counters.rows_without_room += beyond + absent - int(np.count_nonzero(slots))
        return slots

    def context(self, request: Request) -> tuple[int, int]:
        """(first present position that a proposal is given, rows present from there on)."""
        low = max(0, request.committed - self._plan.context_limit)
        return request.table.span(low, request.committed)

    def complete(self, request: Request, touched: range, launch: int) -> None:
        """A launch that wrote to these blocks is done: publish the full ones, let go of what no proposal
        can see any more."""
        for index in touched[: max(0, len(request.keys) - touched.start)]:
            block = int(request.table.blocks[index])
            if block == NULL_BLOCK or self._pool.is_published(block) or self._pool.written[block] > launch:
                continue
            if request.table.is_full(index):
                if self._pool.publish(block, request.keys[index]):
                    self._counters.blocks_published += 1
                    self._hand_on(request.keys[index])
                else:
                    self._counters.collisions += 1
        request.table.let_go_below(self._visible_from(request.committed))

    def close(self, request: Request) -> None:
        """Drop every block; published ones stay findable."""
        if not request.closed:
            request.closed = True
            self._wanted.forget(request)
            request.table.release()
            del self._open[request.owner, request.id]

    def _restore(self, request: Request, first_block: int) -> None:
        for index in range(max(first_block, self._lowest(request)), len(request.keys)):
            self._take_over(request, index)

    def _take_over(self, request: Request, index: int) -> None:
        """Put the published block there, if there is one and no block stands there."""
        if request.table.blocks[index] == NULL_BLOCK:
            block = self._pool.find(request.keys[index])
            if block is not None:
                request.table.adopt(index, block)
                self._counters.rows_restored += self._plan.block_size

    def _hand_on(self, key: bytes) -> None:
        for request, index in self._wanted.published(key):
            # The request may have been rewound to other tokens, or have moved on beyond its window.
            if self._lowest(request) <= index < len(request.keys) and request.keys[index] == key:
                self._take_over(request, index)

    def _lowest(self, request: Request) -> int:
        """The first block that a proposal can still see."""
        return self._visible_from(request.committed) // self._plan.block_size

    def _kept_from(self, request: Request) -> int:
        """First position of which a row that comes now is kept: for others too, or as far as this request's
        proposals see."""
        if self._retain == "all" or self._plan.reach is None:
            return 0
        return max(0, request.committed - (self._plan.reach - 1))

    def _visible_from(self, anchor: int) -> int:
        """First position whose row is kept for a request whose next anchor is there: all, or a window."""
        return 0 if self._plan.window is None else max(0, anchor - (self._plan.window - 1))
