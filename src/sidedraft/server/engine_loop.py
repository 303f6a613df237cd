"""The engine thread's loop: take what is ready, step, answer."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from itertools import takewhile

from sidedraft.engine import Engine
from sidedraft.metrics import Counter
from sidedraft.server.inbox import Inbox, ReleaseOwner, ReleaseRequest
from sidedraft.server.job import Job
from sidedraft.server.reply import Reply
from sidedraft.server.schedule import Schedule
from sidedraft.wire.advance import Answer, Outcome
from sidedraft.wire.errors import Code

log = logging.getLogger(__name__)

IDLE = 0.1
"""Seconds between two looks at the stop flag when there is nothing to do."""

REMEMBERED = 64
"""Slices whose end is remembered, to find those that an advance missed while it was brought here."""

MAX_BREAKDOWNS = 3
"""Consecutive exceptions while finishing a launch, after which the engine is not trusted any more."""


class EngineLoop:
    """Owns the engine. An exception in a step refuses the advances of that step and nothing else."""

    def __init__(
        self,
        engine: Engine,
        schedule: Schedule,
        inbox: Inbox,
        reply: Callable[[Reply], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`reply` is called on this thread and must not block."""
        self.engine = engine
        self._schedule = schedule
        self._inbox = inbox
        self._reply = reply
        self._clock = clock
        self.errors = Counter()
        """Steps that an exception ended."""
        self.failures = 0
        """Consecutive steps that an exception ended; read by any thread."""
        self.step_began: float | None = None
        """When the running step began, None between steps; read by any thread."""
        self.most_waited = 0
        """The most ingest slices that a proposal has waited for; read by any thread."""
        self._breakdowns = 0
        self._slice_ends: deque[float] = deque(maxlen=REMEMBERED)

    def counts(self) -> dict[str, int]:
        """What the loop adds to the engine's own counts; for any thread."""
        return {
            "errors": self.errors.value,
            "slices": self._schedule.slices,
            "most_waited": self.most_waited,
        }

    @property
    def queued(self) -> int:
        """Advances that wait; read by any thread."""
        return len(self._schedule) + len(self._inbox)

    def run(self, stop: threading.Event, drain: float) -> None:
        """Until `stop` is set; then what waits by then is finished, for at most `drain` seconds."""
        while not stop.is_set():
            self.turn(0.0 if len(self._schedule) else IDLE)
        give_up = self._clock() + drain
        self._take(0.0)
        while self._next_step() and self._clock() <= give_up:
            pass

    def turn(self, timeout: float) -> bool:
        """Take in what arrived, waiting up to `timeout` seconds, and do one step. False: nothing to do."""
        self._take(timeout)
        return self._next_step()

    def _take(self, timeout: float) -> None:
        for order in self._inbox.take(timeout):
            match order:
                case Job():
                    self._schedule.add(order, self._missed(order))
                case ReleaseRequest(owner, request, generation):
                    self._give_back(self._schedule.drop(owner, request, generation))
                    self.engine.release(owner, request, generation)
                case ReleaseOwner(owner):
                    self._give_back(self._schedule.drop_owner(owner))
                    self.engine.release_owner(owner)

    def _missed(self, job: Job) -> int:
        """Slices that ended after the job arrived."""
        return sum(1 for _ in takewhile(lambda end: end > job.arrived, reversed(self._slice_ends)))

    def _next_step(self) -> bool:
        slices = self._schedule.slices
        jobs = self._schedule.next()
        if jobs:
            self.step_began = started = self._clock()
            self._reply(self._step(jobs, started))
            self.step_began = None
            if self._schedule.slices > slices:
                self._slice_ends.append(self._clock())
        return bool(jobs)

    def _step(self, jobs: list[Job], started: float) -> Reply:
        try:
            flight = self.engine.launch(jobs)
        except Exception as error:
            # The engine has closed the requests of the batch and goes on.
            return self._failed(jobs, error, started)
        try:
            answers = self.engine.finish(flight)
        except Exception as error:
            self._breakdowns += 1
            if self._breakdowns >= MAX_BREAKDOWNS:
                raise
            return self._failed(jobs, error, started)
        self.failures = self._breakdowns = 0
        waited = max(job.waited for job in jobs)
        self.most_waited = max(self.most_waited, waited)
        return Reply(
            jobs,
            answers,
            started,
            flight.ingest_seconds,
            flight.propose_seconds,
            flight.proposals,
            waited,
        )

    def _failed(self, jobs: list[Job], error: Exception, started: float) -> Reply:
        log.exception("an engine step of %d advances failed", len(jobs))
        self.errors.add()
        self.failures += 1
        return Reply(jobs, [self._forget(job, error) for job in jobs], started)

    def _forget(self, job: Job, error: Exception) -> Answer:
        """What the step left of the request is unknown: close it, so that the verifier opens it again."""
        advance = job.advance
        self.engine.release(job.owner, advance.request, advance.generation)
        return Answer(
            advance.request,
            advance.generation,
            advance.number,
            Outcome.REFUSED,
            error=Code.INTERNAL.value,
            detail=f"engine: {type(error).__name__}",
        )

    def _give_back(self, jobs: list[Job]) -> None:
        if jobs:
            self._reply(Reply(jobs, []))
