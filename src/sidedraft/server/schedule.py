"""Which of the waiting advances the engine takes next.

Each request's advances stay in order. Proposals of all requests whose turn it is go together in one launch;
ingests go in slices of bounded bytes. When both wait they take turns, so that a proposal waits for at most
one slice, and an ingest for at most one launch of proposals.
"""

from __future__ import annotations

from collections import deque

from sidedraft.server.job import Job

MAX_ADVANCES = 512
"""Advances of one step, however small: each costs some work of its own."""

Key = tuple[int, int]
"""(owner, request)."""


class Schedule:
    """Pure: no clock, no thread. Owned by the engine thread."""

    def __init__(self, *, slice_bytes: int, batch: int) -> None:
        """`slice_bytes`: rows of one ingest step; `batch`: proposals of one forward."""
        self._slice = slice_bytes
        self._batch = batch
        self._queues: dict[Key, deque[Job]] = {}
        # Requests by the kind of their first advance, in the order in which they got there.
        self._proposing: dict[Key, None] = {}
        self._ingesting: dict[Key, None] = {}
        self._ingest_turn = False

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def add(self, job: Job) -> None:
        key = (job.owner, job.advance.request)
        queue = self._queues.setdefault(key, deque())
        queue.append(job)
        if len(queue) == 1:
            self._line_up(key)

    def next(self) -> list[Job]:
        """The jobs of the next engine step, a request's in order; empty when nothing waits."""
        turn = self._ingesting and (self._ingest_turn or not self._proposing)
        self._ingest_turn = not turn and bool(self._ingesting)
        return self._take_slice() if turn else self._take_proposals()

    def drop(self, owner: int, request: int, generation: int) -> list[Job]:
        """Take out what waits for this generation of a request, or an older one."""
        key = (owner, request)
        queue = self._queues.pop(key, None)
        if queue is None:
            return []
        kept = deque(job for job in queue if job.advance.generation > generation)
        self._leave(key)
        if kept:
            self._queues[key] = kept
            self._line_up(key)
        return [job for job in queue if job.advance.generation <= generation]

    def drop_owner(self, owner: int) -> list[Job]:
        """Take out everything of one session."""
        dropped: list[Job] = []
        for key in [key for key in self._queues if key[0] == owner]:
            dropped.extend(self._queues.pop(key))
            self._leave(key)
        return dropped

    def _take_proposals(self) -> list[Job]:
        """Every proposal whose turn it is. What came after one goes along where the slice has room for it:
        the engine then sees that the proposal is superseded, and does not compute it.
        """
        taken: list[Job] = []
        room = self._slice
        for key in list(self._proposing)[: self._batch]:
            queue = self._queues[key]
            taken.append(queue.popleft())
            while queue and queue[0].row_bytes <= room and len(taken) < MAX_ADVANCES:
                room -= queue[0].row_bytes
                taken.append(queue.popleft())
            self._move_on(key)
        return taken

    def _take_slice(self) -> list[Job]:
        """One advance of each request in line, and round again while the slice has room."""
        taken: list[Job] = []
        room = self._slice
        while self._ingesting and len(taken) < MAX_ADVANCES:
            key = next(iter(self._ingesting))
            size = self._queues[key][0].row_bytes
            if taken and size > room:
                break
            room -= size
            taken.append(self._queues[key].popleft())
            self._move_on(key)
        return taken

    def _move_on(self, key: Key) -> None:
        """A request had its turn: it goes to the end of the line that its next advance belongs to."""
        self._leave(key)
        if self._queues[key]:
            self._line_up(key)
        else:
            del self._queues[key]

    def _leave(self, key: Key) -> None:
        self._proposing.pop(key, None)
        self._ingesting.pop(key, None)

    def _line_up(self, key: Key) -> None:
        line = self._proposing if self._queues[key][0].advance.depth else self._ingesting
        line[key] = None
