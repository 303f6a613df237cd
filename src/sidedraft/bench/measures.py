"""The four measures. Each gives a report's entries for sessions that are there."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial

from sidedraft.bench.load import Load
from sidedraft.bench.plan import ACCEPTED, Plan
from sidedraft.bench.report import Ingest, Overlap, Proposal, RoundTrip
from sidedraft.bench.samples import by_turns, spread
from sidedraft.bench.session import Session, Step

Arm = tuple[str, str]
"""Transport and kind of row format."""

Progress = Callable[[int, int], None]

BASE = 64
"""Rows of context under a round trip."""


def round_trips(sessions: Mapping[Arm, Session], plan: Plan, progress: Progress) -> list[RoundTrip]:
    """A request says again what follows its first rows, with as many rows as make the size."""
    arms: dict[tuple[Arm, int], Callable[[], float]] = {}
    for arm, session in sessions.items():
        session.fill(["trip"], BASE)
        bound = min(session.agreement.limits.control_payload, max(plan.sizes)) // session.agreement.row_bytes
        counts = sorted({max(1, min(bound, size // session.agreement.row_bytes)) for size in plan.sizes})
        for count in counts:
            arms[arm, count * session.agreement.row_bytes] = _round_trip(session, count)
    found = by_turns(arms, plan.rounds, warm_up=3, progress=progress)
    for session in sessions.values():
        session.release(["trip"])
    return [
        RoundTrip(transport=transport, row_format=kind, payload=size, time=spread(times))
        for ((transport, kind), size), times in found.items()
    ]


def _round_trip(session: Session, count: int) -> Callable[[], float]:
    return lambda: session.step([session.state("trip", BASE, count, 1)]).overhead


def ingest(sessions: Mapping[Arm, Session], plan: Plan, progress: Progress) -> list[Ingest]:
    """Prompts of the same rows in every format, each a new request."""
    arms = {arm: _prompt(session, prompt_rows(session, plan)) for arm, session in sessions.items()}
    found = by_turns(arms, plan.prompts, progress=progress)
    entries = []
    for (transport, kind), prompts in found.items():
        total = statistics.median(step.total for step, _ in prompts)
        rows, sent = prompt_rows(sessions[transport, kind], plan), prompts[0][1]
        entries.append(
            Ingest(
                transport=transport,
                row_format=kind,
                rows=rows,
                payload=sent,
                time=spread([step.total for step, _ in prompts]),
                blocked=spread([step.blocked for step, _ in prompts]),
                gigabytes_per_second=round(sent / total / 1e9, 4),
                rows_per_second=round(rows / total, 1),
            )
        )
    return entries


def prompt_rows(session: Session, plan: Plan) -> int:
    """Rows of a prompt."""
    agreement = session.agreement
    room = min(agreement.limits.context, agreement.max_position) - agreement.max_depth - 1
    return max(1, min(room, plan.prompt // (2 * agreement.row_width)))


def _prompt(session: Session, rows: int) -> Callable[[], tuple[Step, int]]:
    """Its time, and the bytes of rows that travelled."""

    def measure() -> tuple[Step, int]:
        before = session.bytes_of_rows()
        step = session.step([session.state("prompt", 0, rows, 1)])
        session.release(["prompt"])
        return step, session.bytes_of_rows() - before

    return measure


def proposals(sessions: Mapping[Arm, Session], plan: Plan, progress: Progress) -> list[Proposal]:
    """Every batch, depth and context; what was accepted is said again each time, with other tokens, so that a
    context keeps its length."""
    arms: dict[tuple[Arm, int, int, int], Callable[[], Step]] = {}
    for arm, session in sessions.items():
        for context in plan.contexts:
            session.fill(_names(context, max(plan.batches)), context)
        for context, batch, depth in itertools.product(plan.contexts, plan.batches, plan.depths):
            arms[arm, context, batch, depth] = _proposal(session, _names(context, batch), context, depth)
    found = by_turns(arms, plan.rounds, warm_up=3, progress=progress)
    for session, context in itertools.product(sessions.values(), plan.contexts):
        session.release(_names(context, max(plan.batches)))
    return [
        Proposal(
            transport=transport,
            row_format=kind,
            context=context,
            batch=batch,
            depth=depth,
            time=spread([step.total for step in steps]),
            client=_median([step.client for step in steps]),
            queue=_median([step.queue for step in steps]),
            model=_median([step.model for step in steps]),
            other=_median([step.server - step.queue - step.model for step in steps]),
        )
        for ((transport, kind), context, batch, depth), steps in found.items()
    ]


def _names(context: int, batch: int) -> list[str]:
    return [f"{context}-{number}" for number in range(batch)]


def _proposal(session: Session, requests: list[str], context: int, depth: int) -> Callable[[], Step]:
    return lambda: session.step([session.state(one, context, ACCEPTED, depth) for one in requests])


def _median(seconds: list[float]) -> float:
    return round(statistics.median(seconds) * 1e3, 4)


WINDOWS = 5
"""Idle and busy stretches, by turns."""


def overlap(proposing: Session, ingesting: Session, arm: Arm, plan: Plan, progress: Progress) -> Overlap:
    """Stretches of proposals, by turns on an idle server and while another session's prompts go in."""
    context, batch = plan.contexts[0], plan.batches[-1]
    requests = _names(context, batch)
    proposing.fill(requests, context)
    rows = prompt_rows(ingesting, plan)
    measure = _proposal(proposing, requests, context, plan.depths[-1])
    each = max(1, plan.rounds // WINDOWS)
    load = Load(ingesting, rows)

    def stretch(*, busy: bool) -> list[float]:
        with load.running() if busy else nullcontext():
            return [measure().total for _ in range(each)]

    found = by_turns(
        {kind: partial(stretch, busy=kind) for kind in (False, True)}, WINDOWS, progress=progress
    )
    proposing.release(requests)
    idle, busy = (spread([time for times in found[kind] for time in times]) for kind in (False, True))
    return Overlap(
        transport=arm[0],
        row_format=arm[1],
        batch=batch,
        idle=idle,
        busy=busy,
        ratio=round(busy.p50 / idle.p50, 3),
        gigabytes_per_second=round(load.bytes / load.seconds / 1e9, 4),
    )
