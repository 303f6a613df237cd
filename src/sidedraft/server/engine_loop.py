"""The engine thread's loop: take what is ready, step, answer."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

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
        self._breakdowns = 0

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
                    self._schedule.add(order)
                case ReleaseRequest(owner, request, generation):
                    self._give_back(self._schedule.drop(owner, request, generation))
                    self.engine.release(owner, request, generation)
                case ReleaseOwner(owner):
                    self._give_back(self._schedule.drop_owner(owner))
                    self.engine.release_owner(owner)

    def _next_step(self) -> bool:
        jobs = self._schedule.next()
        if jobs:
            self.step_began = started = self._clock()
            self._reply(self._step(jobs, started))
            self.step_began = None
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
        return Reply(jobs, answers, started, flight.ingest_seconds, flight.propose_seconds, flight.proposals)

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
