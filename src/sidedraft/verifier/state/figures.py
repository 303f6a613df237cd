"""What a verifier knows of itself, and the report of it that operators see at the server."""

from __future__ import annotations

import dataclasses

from sidedraft.metrics import Stages
from sidedraft.verifier.state.acceptance import Acceptance, accepted
from sidedraft.verifier.state.counters import Counters
from sidedraft.verifier.state.entry import Entry
from sidedraft.verifier.state.ladder import Ladder
from sidedraft.verifier.state.outcome import Draft
from sidedraft.verifier.state.request import RequestState
from sidedraft.verifier.state.step import Step, Times
from sidedraft.wire import messages as m
from sidedraft.wire.agreement import Agreement
from sidedraft.wire.versions import understood

STEP_STAGES = tuple(field.name for field in dataclasses.fields(Times))

INTERVAL = 1.0
"""Seconds between two reports."""


class Figures:
    """Used under the drafter's lock; all of it is for the drafter's life."""

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self.stages = Stages()
        self.acceptance = Acceptance()
        self._session = 0
        self._due = 0.0

    def take(self, step: Step, width: int) -> None:
        """The engine takes a step's result, drafts of `width` tokens at most, width above 0."""
        if step.asks and not step.taken:
            for stage in STEP_STAGES:
                seconds = getattr(step.times, stage)
                if seconds > 0:  # 0 says that there was no such stage: nothing sent, or no answer
                    self.stages.observe(stage, seconds)
        step.taken = max(step.taken, width)

    def judge(self, request: RequestState, entry: Entry) -> None:
        """What the request's next advance says of its latest draft, if the engine was given one in time."""
        ask = request.latest
        if ask is None or ask.step is None or not ask.step.taken:
            return
        outcome = ask.step.outcomes[ask.index]
        if not isinstance(outcome, Draft):
            return
        draft = outcome.tokens[: ask.step.taken]
        followed = accepted(draft, ask.end, ask.anchor, entry.first, entry.tokens)
        if followed is not None:
            self.acceptance.add(len(draft), followed)

    def report(self, now: float, ladder: Ladder, agreement: Agreement) -> m.Report | None:
        """The report that is due; None when none is, or the server does not understand it."""
        if not understood(m.Report, agreement.minor, agreement.features):
            return None
        if agreement.session == self._session and now < self._due:
            return None
        self._session, self._due = agreement.session, now + INTERVAL
        return m.Report(
            session=agreement.session,
            epoch=agreement.epoch,
            breaker=ladder.breaker.state.value,
            requests=len(ladder.requests),
            behind=sum(request.behind for request in ladder.requests.values()),
            deadline_us=round(ladder.patience.seconds() * 1e6),
            counts=dataclasses.asdict(self.counters),
            stages={
                name: m.StageTimes(counts=tuple(times.counts), total_us=times.total)
                for name, times in self.stages.histograms.items()
                if any(times.counts)
            },
            drafted=tuple(self.acceptance.drafted),
            accepted=tuple(self.acceptance.accepted),
        )
