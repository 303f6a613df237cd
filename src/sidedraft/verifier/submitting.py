"""The engine's side of a step: check, plan, copy rows into send buffers, hand them to the I/O thread."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from sidedraft.verifier.shared import Shared
from sidedraft.verifier.staging import Buffer, fill
from sidedraft.verifier.state.cutting import Parcel
from sidedraft.verifier.state.news import Rung
from sidedraft.verifier.state.outcome import NoDraft, Reason
from sidedraft.verifier.state.step import Step
from sidedraft.verifier.submission import Rows, Submission, check
from sidedraft.wire.agreement import Agreement

READY_POLL = 0.00005
"""Seconds between two looks at the engine's event."""


class ReadyEvent(Protocol):
    """What `submit` needs of an event that says that the rows are computed (`torch.Event` has it)."""

    def query(self) -> bool: ...


def submit(shared: Shared, submissions: Sequence[Submission], ready: ReadyEvent | None) -> Step:
    """See `Drafter.submit`."""
    begun = shared.clock()
    facts = shared.facts
    entries = [
        check(one, row_width=facts.row_width, vocab_size=facts.target.vocab_size, window=facts.window)
        for one in submissions
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
        computed = any(parcel.layout.tail for parcel in parcels) and _computed(shared, ready, step.deadline)
        for parcel in parcels:
            _stage(shared, parcel, rows, agreement, step.deadline, computed=computed)
            with shared.changed:
                shared.session.outbox.dispatch(shared.clock(), parcel)
                shared.wake()
        step.times.context_d2h = shared.clock() - planned
    return step


def _computed(shared: Shared, ready: ReadyEvent | None, until: float) -> bool:
    """Wait for the rows; False when they are not computed by `until`, or the device fails."""
    try:
        while ready is not None and not ready.query():
            if shared.clock() >= until:
                return False
            time.sleep(READY_POLL)
    except Exception as error:  # a device's fault must not reach the engine as one of ours
        with shared.changed:
            shared.session.news.add(Rung.STAGING, f"waiting for rows failed: {error}")
        return False
    return True


def _stage(
    shared: Shared,
    parcel: Parcel,
    rows: Sequence[Rows | None],
    agreement: Agreement,
    until: float,
    *,
    computed: bool,
) -> None:
    """Fill the payload. Rows that are not computed, or find no free buffer, by `until` stay here."""
    wanted = sum(len(piece.rows) for piece in parcel.pieces)
    buffer = _take(shared, parcel, until) if wanted and computed else None
    try:
        fill(parcel, rows, agreement, buffer, shared.facts.projection)
        why = "no send buffer was free in time" if computed else "they were not computed in time"
    except Exception as error:  # a device's fault must not reach the engine as one of ours
        fill(parcel, rows, agreement, None)
        why = f"copying them failed: {error}"
        if buffer is not None:
            with shared.changed:
                buffer.pool.give(buffer)
    if wanted and not parcel.layout.tail:
        with shared.changed:
            shared.session.counters.rows_dropped += wanted
            shared.session.news.add(Rung.STAGING, f"{wanted} rows stay here, a hole in the context: {why}")


def _take(shared: Shared, parcel: Parcel, until: float) -> Buffer | None:
    """A buffer. Credits set them free while earlier parcels go out, so it is worth waiting for one, but not
    while the breaker is open: then no step waits for the server in any way."""
    found: list[Buffer] = []

    def decided() -> bool:
        buffer = shared.take_buffer(bulk=parcel.bulk)
        if buffer is not None:
            found.append(buffer)
        return bool(found) or not shared.session.ladder.breaker.closed

    shared.wait(decided, until)
    return found[0] if found else None
