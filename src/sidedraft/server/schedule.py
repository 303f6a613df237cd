"""Which of the waiting advances the engine takes next.

Each request's advances stay in order. Proposals whose turn it is go together in one launch, whoever asks;
ingests go in slices of bounded bytes. A slice runs only when no proposal waits that waited through the slice
before, so that a proposal waits for at most one, and only after a launch when proposals wait, so that neither
kind starves the other. Within a kind, sessions get equal shares, of rows or of bytes (`server.line`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from sidedraft.engine import MemoryPlan
from sidedraft.server.job import Job
from sidedraft.server.line import Key, Line

MAX_ADVANCES = 512
"""Advances of one step, however small: each costs some work of its own."""

CREDITS = 4
"""Rounds of credit that make up a full step: a session with much to do lets the others in so often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBounds:
    """What one engine step may hold. What is larger than a bound by itself goes alone."""

    slice_bytes: int
    """Rows of one ingest step, in bytes."""
    proposals: int
    """Proposals of one launch."""
    rows: int
    """Rows that the proposals of one launch may look at and bring: those of about one forward."""
    context: int
    """Rows that one proposal looks at, at most."""

    @classmethod
    def of(cls, plan: MemoryPlan, slice_bytes: int) -> StepBounds:
        """A launch holds what one forward's scratch does, so that no proposal in it waits for many others."""
        return cls(
            slice_bytes=slice_bytes,
            proposals=plan.max_batch,
            rows=plan.scratch_columns,
            context=plan.context_limit,
        )


class Schedule:
    """Pure: no clock, no thread. Owned by the engine thread."""

    def __init__(self, bounds: StepBounds) -> None:
        self._bounds = bounds
        self._queues: dict[Key, deque[Job]] = {}
        # Requests by the kind of their first advance.
        self._proposing = Line(max(1, bounds.rows // CREDITS))
        self._ingesting = Line(max(1, bounds.slice_bytes // CREDITS))
        self._least = max(1, bounds.slice_bytes // MAX_ADVANCES)
        self._owed: set[Key] = set()
        """Proposals that waited through a slice: no other one before them."""
        self._launched = False
        """Proposals had their turn since ingest waits."""
        self._sliced: set[Key] = set()
        """Requests whose own rows were in the last slice: they did not wait for it."""
        self.slices = 0
        """Slices given out so far."""

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def add(self, job: Job, missed: int = 0) -> None:
        """`missed`: slices that ran since the job arrived."""
        key = (job.owner, job.advance.request)
        queue = self._queues.setdefault(key, deque())
        queue.append(job)
        if len(queue) == 1:
            self._line_up(key, 0 if key in self._sliced else missed)

    def next(self) -> list[Job]:
        """The jobs of the next engine step, a request's in order; empty when nothing waits."""
        return self._take_slice() if self._slice_is_due() else self._take_proposals()

    def drop(self, owner: int, request: int, generation: int) -> list[Job]:
        """Take out what waits for this generation of a request, or an older one."""
        key = (owner, request)
        queue = self._queues.get(key, deque())
        dropped = [job for job in queue if job.advance.generation <= generation]
        if dropped:
            del self._queues[key]
            self._leave(key)
            kept = deque(job for job in queue if job.advance.generation > generation)
            if kept:
                self._queues[key] = kept
                self._line_up(key)
        return dropped

    def drop_owner(self, owner: int) -> list[Job]:
        """Take out everything of one session."""
        dropped: list[Job] = []
        for key in [key for key in self._queues if key[0] == owner]:
            dropped.extend(self._queues.pop(key))
            self._leave(key)
        return dropped

    def _slice_is_due(self) -> bool:
        if not self._ingesting or not self._proposing:
            return bool(self._ingesting)
        return self._launched and not self._owed

    def _take_proposals(self) -> list[Job]:
        """Every proposal whose turn it is, within the bounds. What came after one goes along where it is
        little: the engine then sees that the proposal is superseded, and does not compute it.
        """
        taken: list[Job] = []
        self._launched = bool(self._ingesting)
        left, rows, extra = self._bounds.proposals, self._bounds.rows, self._bounds.slice_bytes // CREDITS
        while left and len(taken) < MAX_ADVANCES:
            key = self._proposing.first(self._query_cost, rows if taken else None)
            if key is None:
                break
            cost = self._query_cost(key)
            self._proposing.pay(key, cost)
            left, rows = left - 1, rows - cost
            queue = self._queues[key]
            job = queue.popleft()
            job.waited = self.slices - job.since
            taken.append(job)
            while queue and queue[0].row_bytes <= extra and len(taken) < MAX_ADVANCES:
                extra -= queue[0].row_bytes
                taken.append(queue.popleft())
            self._move_on(key)
        return taken

    def _take_slice(self) -> list[Job]:
        """Advances of the sessions in line, in turn, while the slice has room."""
        taken: list[Job] = []
        room = self._bounds.slice_bytes
        self.slices += 1
        self._launched = False
        self._owed.update(self._proposing)
        while len(taken) < MAX_ADVANCES:
            key = self._ingesting.first(self._ingest_cost, room if taken else None)
            if key is None:
                break
            cost = self._ingest_cost(key)
            self._ingesting.pay(key, cost)
            room -= cost
            taken.append(self._queues[key].popleft())
            self._move_on(key)
        self._sliced = {(job.owner, job.advance.request) for job in taken}
        return taken

    def _query_cost(self, key: Key) -> int:
        """Rows: of context at most, of the query block, and those that come with it."""
        advance = self._queues[key][0].advance
        return min(advance.end, self._bounds.context) + advance.depth + 1 + advance.row_count

    def _ingest_cost(self, key: Key) -> int:
        """Bytes; an advance without rows is not free."""
        return max(self._least, self._queues[key][0].row_bytes)

    def _move_on(self, key: Key) -> None:
        """A request had its turn, and stays in line if its next advance is of the same kind."""
        queue = self._queues[key]
        self._owed.discard(key)
        if not queue:
            self._leave(key)
            del self._queues[key]
            return
        self._line_up(key)

    def _leave(self, key: Key) -> None:
        self._proposing.remove(key)
        self._ingesting.remove(key)
        self._owed.discard(key)

    def _line_up(self, key: Key, missed: int = 0) -> None:
        job = self._queues[key][0]
        job.since = self.slices - missed
        line, other = self._proposing, self._ingesting
        if not job.advance.depth:
            line, other = other, line
        elif missed:
            self._owed.add(key)
        other.remove(key)
        line.add(key)
