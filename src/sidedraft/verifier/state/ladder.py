"""The failure ladder: what every request is allowed, and what follows when the server is late or lost.

Late: the request is behind and only ingests until the server has caught up, in the same generation. Lost:
it is opened again, in a new one. When that is no use either, the breaker opens and no step waits at all.
What a submit makes of this is in `planning`, what an answer makes of it in `answers`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from random import Random

from sidedraft.settings import VerifierSettings
from sidedraft.verifier.state.backoff import Backoff
from sidedraft.verifier.state.breaker import Breaker, BreakerState, Cause
from sidedraft.verifier.state.counters import Counters
from sidedraft.verifier.state.deadline import AdaptiveDeadline
from sidedraft.verifier.state.news import News, Rung
from sidedraft.verifier.state.outcome import NoDraft, Outcome, Reason
from sidedraft.verifier.state.request import Phase, RequestState
from sidedraft.verifier.state.step import Ask, Step, Verdict
from sidedraft.wire.agreement import Agreement

SWEEPS = 8
"""How many times within `lost_after` the requests are looked over."""


class Ladder:
    """Requests, open steps and the breaker of one drafter. Not thread-safe; `now` never goes back."""

    def __init__(self, settings: VerifierSettings, random: Random, counters: Counters, news: News) -> None:
        self.settings = settings
        self.counters = counters
        self.news = news
        self.agreement: Agreement | None = None
        """Of the session there is; None: nothing can be sent."""
        self.blocked = False
        """The transport refused a message, and the server has not been heard of since."""
        self.patience = AdaptiveDeadline(settings)
        self.breaker = Breaker(settings, Backoff(settings.retry_first, settings.retry_cap, random))
        self.requests: dict[Hashable, RequestState] = {}
        self.by_id: dict[int, RequestState] = {}
        """The same, and those in `leaving`."""
        self.leaving: dict[int, RequestState] = {}
        """Released requests that the server has not been told of."""
        self.steps: list[Step] = []
        """Not settled yet."""
        self.held: set[int] = set()
        """Ids of requests that the server holds, as far as we know: opened and not taken back."""
        self.reopening: set[int] = set()
        """Ids of lost requests whose new opening is not answered yet."""
        self.probe: Ask | None = None
        self.heard_at = 0.0
        """When the server last answered or gave credit."""
        self._random = random
        self._sweep_at = 0.0
        self._dismissed: list[tuple[int, int]] = []

    # What the session tells.

    def session_opened(self, now: float, agreement: Agreement) -> None:
        """A new session: nothing is open in it yet."""
        self.agreement = agreement
        self.blocked = False
        self.heard_at = now
        self.close_breaker()

    def session_lost(self, now: float, why: str) -> None:
        """Whatever the server knows is uncertain: everything is lost, and nobody waits."""
        self.agreement = None
        self.blocked = False
        self.lose(now, self.requests.values(), why)
        self.held.clear()
        self._dismissed.clear()
        for wire_id in self.leaving:
            del self.by_id[wire_id]
        self.leaving.clear()
        self.trip(now, Cause.NO_SESSION, why)

    def send_refused(self, now: float, unsent: Iterable[int]) -> None:
        """The transport took no message; advances of these requests (ids) were not sent."""
        self.blocked = True
        self.counters.refused_sends += 1
        self.news.add(Rung.REFUSED_SEND, "the transport takes no message: its queue is full or it is cut off")
        self.lose(now, self.find(unsent), "an advance could not be sent")
        self.trip(now, Cause.REFUSED_SEND, "a message could not be sent")

    def drained(self, now: float) -> None:
        """The server has answered something sent after the refusal: its queue moves again."""
        self.blocked = False
        self.heard_at = now
        if self.breaker.cause is Cause.REFUSED_SEND:
            self.close_breaker()

    def find(self, wire_ids: Iterable[int]) -> list[RequestState]:
        """Those of these requests that still exist."""
        return [self.by_id[wire_id] for wire_id in wire_ids if wire_id in self.by_id]

    # What the engine tells.

    def release(self, now: float, keys: Iterable[Hashable]) -> None:
        """These requests ended; unknown ones are ignored."""
        for key in keys:
            request = self.requests.pop(key, None)
            if request is None:
                continue
            self._let_go(now, request)
            self.supersede(now, request, NoDraft(Reason.RELEASED))
            request.close(Phase.RELEASED, NoDraft(Reason.RELEASED))
            request.retry_at = now + self.settings.lost_after
            if self.agreement is not None and request.session == self.agreement.session:
                self.leaving[request.wire_id] = request
            else:
                del self.by_id[request.wire_id]

    def dismiss(self, now: float, request: RequestState, why: NoDraft) -> None:
        """The server is of no use to it for now, and lets go of it as soon as nothing is under way."""
        if request.open and request.in_step:
            self.held.discard(request.wire_id)
            self._dismissed.append((request.wire_id, request.generation))
        if request.open:
            self.shut(now, request, why)
        request.why_closed = why

    def take_released(self, now: float, most: int) -> list[tuple[int, int]]:
        """(id, generation) of at most `most` requests that the server can let go of.

        Of a released one every advance must have arrived: a release could otherwise overtake what goes by
        the bulk lane, and the server would open the request once more, for nobody.
        """
        told, self._dismissed = self._dismissed[:most], self._dismissed[most:]
        for request in list(self.leaving.values()):
            if len(told) < most and (request.in_step or now >= request.retry_at):
                told.append((request.wire_id, request.generation))
                self.held.discard(request.wire_id)
                del self.leaving[request.wire_id], self.by_id[request.wire_id]
        return told

    def expire(self, now: float, step: Step) -> None:
        """Nobody waits for this step any more."""
        late = [ask for ask in step.asks if ask.waiting]
        if not late:
            return
        self.counters.late += len(late)
        self.news.add(Rung.LATE, f"{len(late)} of {len(step.asks)} drafts were not there in time")
        for ask in late:
            ask.request.fall_behind(now)
            self.resolve(now, ask, NoDraft(Reason.LATE))

    def end(self, now: float) -> None:
        """The drafter is closed: nobody waits any more."""
        for step in list(self.steps):
            for ask in step.asks:
                self.resolve(now, ask, NoDraft(Reason.CLOSED))

    # Time.

    def tick(self, now: float) -> None:
        """Everything that is due."""
        for step in [step for step in self.steps if now >= step.deadline]:
            self.expire(now, step)
        if self.probe is not None and now >= self.probe.deadline:
            self.probe.request.fall_behind(now)
            self.end_probe(now, passed=False)
        if now >= self._sweep_at and self.agreement is not None and not self.blocked:
            patience = self.settings.lost_after
            self._sweep_at = now + patience / SWEEPS
            stuck = [r for r in self.requests.values() if r.stuck(now, patience, self.heard_at)]
            self.lose(now, stuck, f"no answer for {patience:g} s")

    def next_event(self) -> float:
        """When `tick` has something to do; infinity when nothing is due."""
        due = min((step.deadline for step in self.steps), default=math.inf)
        if self.probe is not None:
            due = min(due, self.probe.deadline)
        if self.agreement is None or self.blocked:
            return due
        for request in self.leaving.values():
            due = min(due, request.retry_at)
        return min(due, self._sweep_at) if self.requests else due

    # Rungs.

    def resolve(self, now: float, ask: Ask, outcome: Outcome) -> None:
        """The end of a question, told once; closes the step when it was its last."""
        step = ask.step
        if not ask.waiting or step is None:
            return
        ask.waiting = False
        step.resolve(ask.index, outcome)
        if step.settled:
            self.finish(now, step)

    def caught_up(self, now: float, request: RequestState) -> bool:
        """Whether the server is in step with it, or within half of what a step waits."""
        return request.caught_up(now, self.patience.seconds() / 2)

    def catch_up(self, now: float, request: RequestState) -> None:
        """End its being behind, if it has caught up."""
        if request.behind and self.caught_up(now, request):
            request.behind = False
            self.counters.resumed += request.wire_id not in self.reopening

    def supersede(self, now: float, request: RequestState, why: NoDraft) -> None:
        """The request moves on: its draft, there or still to come, has lost its base."""
        latest, request.latest = request.latest, None
        if latest is not None:
            self.resolve(now, latest, why)
            latest.revoke(why)

    def finish(self, now: float, step: Step) -> None:
        """A step with questions is settled: the breaker judges it."""
        self.steps.remove(step)
        step.times.client_total = now - step.begun
        step.times.rpc_roundtrip = 0.0 if step.sent_at is None else now - step.sent_at
        verdict = step.verdict()
        if verdict is not Verdict.NOTHING and self.breaker.step(now, verdict is Verdict.ALL_LATE):
            self._opened(now, "every draft of the last steps was late")

    def lose(self, now: float, requests: Iterable[RequestState], why: str) -> None:
        """A new generation at their next submission; their questions end."""
        lost = [request for request in requests if request.open]
        self.counters.lost += len(lost)
        for request in lost:
            self.shut(now, request, NoDraft(Reason.LOST, why))
        if lost:
            self.news.add(Rung.LOST, f"{len(lost)} requests lost: {why}")

    def refuse(self, now: float, request: RequestState, why: NoDraft) -> None:
        """The server and we disagree about a request: lost, and opened again after a growing wait."""
        if request.refusals is None:
            settings = self.settings
            request.refusals = Backoff(settings.retry_first, settings.retry_cap, self._random)
        request.retry_at = now + request.refusals.next()
        self.counters.lost += 1
        self.shut(now, request, why)

    def shut(self, now: float, request: RequestState, why: NoDraft) -> None:
        """An open request becomes closed."""
        ask = request.ask
        self._let_go(now, request)
        request.close(Phase.CLOSED, why)
        if ask is not None:
            self.resolve(now, ask, why)

    def trip(self, now: float, cause: Cause, why: str) -> None:
        """Open the breaker at once."""
        if self.breaker.trip(now, cause):
            self._opened(now, why)

    def close_breaker(self) -> None:
        """The cause is cured."""
        self.probe = None
        if not self.breaker.closed:
            self.breaker.close()
            self.counters.breaker_closed += 1
            if self.counters.breaker_opened:  # the first session is no news of the breaker
                self.news.add(Rung.BREAKER, "breaker closed: steps ask for drafts again")

    def end_probe(self, now: float, *, passed: bool) -> None:
        """The probe was answered in time, or not."""
        self.probe = None
        if self.breaker.state is not BreakerState.HALF_OPEN:
            return
        if passed:
            # What was observed before belongs to another time of this server.
            self.patience.forget()
            self.close_breaker()
        else:
            self.breaker.trip(now, Cause.LATE)

    def _opened(self, now: float, why: str) -> None:
        self.probe = None
        self.counters.breaker_opened += 1
        self.news.add(Rung.BREAKER, f"breaker open, no step waits: {why}")
        for step in list(self.steps):
            for ask in step.asks:
                if ask.waiting:
                    ask.request.fall_behind(now)
                    self.resolve(now, ask, NoDraft(Reason.OPEN))

    def _let_go(self, now: float, request: RequestState) -> None:
        """Places a request holds while it is open."""
        self.reopening.discard(request.wire_id)
        if self.probe is not None and self.probe.request is request:
            self.end_probe(now, passed=False)
