"""The engine's side of a step: check, plan, copy rows into send buffers, hand them to the I/O thread."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from sidedraft.verifier.filling import Filler
from sidedraft.verifier.shared import Shared
from sidedraft.verifier.state.cutting import Parcel
from sidedraft.verifier.state.outcome import NoDraft, Reason
from sidedraft.verifier.state.step import Step
from sidedraft.verifier.submission import Submission, check

READY_POLL = 0.00005
"""Seconds between two looks at the engine's event."""


class ReadyEvent(Protocol):
    """What `submit` needs of an event that says that the rows are computed (`torch.Event` has it)."""

    def query(self) -> bool: ...


def submit(
    shared: Shared, filler: Filler, submissions: Sequence[Submission], ready: ReadyEvent | None
) -> Step:
    """See `Drafter.submit`."""
    begun = shared.clock()
    facts = shared.facts
    entries = [
        check(one, row_width=facts.row_width, vocab_size=facts.target.vocab_size) for one in submissions
    ]
    with shared.changed:
        if shared.closed:
            step = Step([entry.key for entry in entries], begun, begun)
            for index in range(len(entries)):
                step.put(index, NoDraft(Reason.CLOSED))
            return step
        step, parcels = shared.session.submit(shared.clock(), entries, begun)
        agreement = shared.session.agreement
    planned = shared.clock()
    step.times.request_plan = planned - begun
    if agreement is not None and parcels:
        rows = [one.rows for one in submissions]
        why_not = ""
        if any(parcel.layout.tail for parcel in parcels) and not filler.orders(rows, ready):
            why_not, ready = _wait(shared, ready, step.deadline), None
        for parcel in parcels:
            filler.send(parcel, rows, agreement, step.deadline, ready=ready, why_not=why_not)
        if not shared.deferred:
            shared.wait(lambda: _taken_in(shared, parcels), step.deadline)
        step.times.context_d2h = shared.clock() - planned
    return step


def _wait(shared: Shared, ready: ReadyEvent | None, until: float) -> str:
    """Wait on the host for the rows; says why they are not to be copied, if they are not."""
    try:
        while ready is not None and not ready.query():
            if shared.clock() >= until:
                return "they were not computed in time"
            time.sleep(READY_POLL)
    except Exception as error:  # a device's fault must not reach the engine as one of ours
        return f"waiting for them failed: {error}"
    return ""


def _taken_in(shared: Shared, parcels: Sequence[Parcel]) -> bool:
    """Whether the server has answered every bulk advance, but for those of requests that are lost."""
    if not shared.session.ladder.breaker.closed:
        return True
    for parcel in parcels:
        for piece in parcel.pieces if parcel.bulk else ():
            request = shared.session.ladder.by_id.get(piece.advance.request)
            current = request is not None and request.open and request.generation == piece.advance.generation
            if current and request is not None and request.answered < piece.advance.number:
                return False
    return True
