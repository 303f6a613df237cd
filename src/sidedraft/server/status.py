"""What the HTTP end shows: assembled on request from what the threads publish."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import sidedraft
from sidedraft.metrics import snapshot
from sidedraft.server import verifier_metrics
from sidedraft.server.counters import IoCounters
from sidedraft.server.phases import Lifecycle, Phase
from sidedraft.server.sessions import Session, Sessions

IO_STALLED = 5.0
"""Seconds without a turn of the I/O loop, which turns ten times a second when nothing happens."""
STEP_STALLED = 30.0
"""Seconds that one engine step may take."""
MANY_FAILURES = 3
"""Consecutive engine steps that an exception ended."""


class EngineHealth(Protocol):
    """What the engine thread publishes; every member may be read by any thread."""

    @property
    def failures(self) -> int: ...

    @property
    def step_began(self) -> float | None: ...

    def queued(self) -> int: ...

    def counts(self) -> dict[str, Any]:
        """Requests, blocks, rows, steps: numbers only."""


class Alive(Protocol):
    """A thread."""

    def is_alive(self) -> bool: ...


class IoHealth(Protocol):
    turned: float


@dataclass(slots=True)
class StatusBoard:
    """A `http.Board`. The server fills in its parts as they come to be."""

    lifecycle: Lifecycle
    io_counters: IoCounters
    clock: Callable[[], float] = time.monotonic
    started: float = field(default_factory=time.monotonic)
    facts: dict[str, Any] = field(default_factory=dict)
    """What does not change: address, draft, device, limits, memory plan."""
    sessions: Sessions | None = None
    io: IoHealth | None = None
    engine: EngineHealth | None = None
    threads: dict[str, Alive] = field(default_factory=dict)

    def ready(self) -> tuple[bool, str]:
        """Whether proposals can be served right now, and the reason in words."""
        phase = self.lifecycle.phase
        if phase is not Phase.READY:
            return False, self.lifecycle.reason or phase.value
        for name, thread in self.threads.items():
            if not thread.is_alive():
                return False, f"the {name} thread is dead"
        now = self.clock()
        if self.io is not None and now - self.io.turned > IO_STALLED:
            return False, "the transport thread does not turn"
        if self.engine is not None:
            began = self.engine.step_began
            if began is not None and now - began > STEP_STALLED:
                return False, "an engine step does not end"
            if self.engine.failures >= MANY_FAILURES:
                return False, f"the last {self.engine.failures} engine steps failed"
        return True, "ready"

    def status(self) -> dict[str, Any]:
        """Everything, as JSON values; no prompt, token or row."""
        ready, reason = self.ready()
        now = self.clock()
        engine = self.engine
        return {
            "software": f"sidedraft {sidedraft.__version__}",
            "pid": os.getpid(),
            "phase": self.lifecycle.phase.value,
            "phase_seconds": round(self.lifecycle.seconds, 3),
            "uptime_seconds": round(now - self.started, 3),
            "ready": ready,
            "reason": reason,
            **self.facts,
            "counts": {
                "io": snapshot(self.io_counters),
                "engine": {} if engine is None else {"queued": engine.queued(), **engine.counts()},
            },
            "sessions": [describe(session, now) for session in self.sessions or ()],
        }


def describe(session: Session, now: float) -> dict[str, Any]:
    """A session without its secrets."""
    agreement = session.agreement
    return {
        "verifier": session.verifier,
        "client": None if session.client is None else session.client.name,
        "namespace": agreement.namespace,
        "identity": agreement.identity,
        "row_format": agreement.row_format.kind,
        "max_depth": agreement.max_depth,
        "requests": len(session.requests),
        "rows": session.rows,
        "unanswered": session.unanswered,
        "bytes_held": {lane.value: count for lane, count in session.held.items()},
        "silent_seconds": round(max(0.0, now - session.heard), 3),
        "report": None if session.report is None else verifier_metrics.describe(session.report),
    }


def numbers(record: Any) -> dict[str, Any]:
    """A dataclass of numbers, nested ones included, as JSON values."""
    return dataclasses.asdict(record)
