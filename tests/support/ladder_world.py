"""An engine, a verifier, a network and a model server in one process and in virtual time.

The verifier is the real one from `submit` to `result`, with its own codec and send buffers; only the thread
and the waiting are ours, so that every wait is measured to the tick of the clock.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random

import msgspec

from sidedraft.settings import VerifierSettings, WireLimits
from sidedraft.transport.fake import FakeNetwork, VirtualClock
from sidedraft.verifier import submitting
from sidedraft.verifier.facts import VerifierFacts
from sidedraft.verifier.filling import Filler
from sidedraft.verifier.pending import Pending
from sidedraft.verifier.pumping import Pump
from sidedraft.verifier.reporting import Reporter
from sidedraft.verifier.shared import Shared
from sidedraft.verifier.state.outcome import Draft, NoDraft, Outcome, Reason
from sidedraft.verifier.submission import Submission
from support.model_server import DRAFT, MAX_DEPTH, TAPS, TARGET, VOCAB, ModelServer, draft_of, rows_of

STEP_TIME = 0.03
"""Seconds the imagined target takes."""

SMALL = WireLimits(control_rows=512, control_payload=4096, bulk_payload=1024, bulk_credit=4096)
SETTINGS = VerifierSettings(handshake_timeout=1.0, limits=SMALL)
IMPATIENT = VerifierSettings(deadline=0.02, handshake_timeout=1.0, limits=SMALL)
"""A fixed deadline, shorter than a step: an answer that is late by a step is late."""


def facts(taps: tuple[int, ...] = TAPS) -> VerifierFacts:
    target = msgspec.structs.replace(TARGET, taps=taps)
    return VerifierFacts(target=target, draft=DRAFT, max_position=1000, row_formats=("f32",))


@dataclass(eq=False)
class Request:
    """A request of the imagined engine: its accepted tokens and the one after them."""

    name: int
    random: Random
    tokens: list[int] = field(default_factory=list)
    anchor: int = 0
    reported: int = 0
    draft: list[int] = field(default_factory=list)
    drafts: int = 0
    generations: set[int] = field(default_factory=set)
    late: tuple[int, int] | None = None
    """After a late draft: its generation, and what was answered by then."""

    def grow(self) -> None:
        """A target step: some of the draft is accepted, and one more token is sampled."""
        accepted = self.draft[: self.random.randint(0, len(self.draft))]
        self.tokens += [self.anchor, *accepted]
        self.anchor = self.random.randrange(VOCAB)
        self.draft = []

    def rewind(self, count: int) -> None:
        """The engine takes tokens back."""
        keep = max(0, len(self.tokens) - count)
        del self.tokens[keep:]
        self.anchor = self.random.randrange(VOCAB)
        self.draft = []
        self.reported = min(self.reported, keep)


class World:
    """Everything, and the figures that must stay zero."""

    def __init__(
        self,
        seed: int = 0,
        settings: VerifierSettings = SETTINGS,
        service: float = 0.004,
        taps: tuple[int, ...] = TAPS,
        told: VerifierFacts | None = None,
    ) -> None:
        self.random = Random(seed)
        self.clock = VirtualClock()
        self.network = FakeNetwork(self.clock, seed, queue_limit=16, reconnect_delay=0.01)
        self.server = self.make_server(service)
        self.channel = self.network.connect()
        told = facts(taps) if told is None else told
        self.shared = Shared(told, settings, self.clock, Random(seed + 1), wait=self.wait)
        self.filler = Filler(self.shared)
        logging.getLogger("sidedraft.verifier").setLevel(logging.CRITICAL)
        self.pump = Pump(self.shared, self.channel, Reporter("fake"))
        self.requests: dict[int, Request] = {}
        self.stale = 0
        """Drafts that belong to another base than the one they were handed out for."""
        self.overrun = 0.0
        """Greatest time waited beyond a deadline."""
        self.longest = 0.0
        """Greatest time waited."""
        self.waits_while_open = 0
        self.pressed = 0
        """Drafts asked of a server that was late and has answered nothing since, or that has not answered the
        new opening yet."""
        self.reopening = 0
        """Most requests whose new opening was not answered."""
        self.outcomes: list[Outcome] = []
        self._names = itertools.count()

    def make_server(self, service: float) -> ModelServer:
        """The server at the other end."""
        return ModelServer(self.network.listen, self.clock, service=service)

    def is_right(self, request: Request, draft: list[int]) -> bool:
        """Whether it is a draft for what the request has now."""
        return draft == draft_of(request.tokens, request.anchor, len(draft))

    @property
    def session(self):
        return self.shared.session

    @property
    def counters(self):
        return self.session.counters

    # Time.

    def turn(self) -> None:
        """Everybody does what is due now, and what follows from it now."""
        while True:
            self.server.turn()
            self.pump.turn(0.0)
            now = self.clock()
            if all(due is None or due > now for due in (self.network.next_due(), self.server.next_due())):
                return

    def wait(self, done: Callable[[], bool], until: float) -> bool:
        """Let time pass, event by event, until `done()` or `until`."""
        while True:
            self.turn()
            if done():
                return True
            now = self.clock()
            if now >= until:
                return False
            due = [t for t in (self.network.next_due(), self.server.next_due()) if t is not None]
            self.clock.advance_to(min([*due, now + self.pump.timeout(), until]))

    def sleep(self, seconds: float) -> None:
        self.wait(lambda: False, self.clock() + seconds)

    def connect(self) -> None:
        if not self.wait(lambda: self.session.agreement is not None, self.clock() + 5):
            raise AssertionError("no session within 5 s")

    # The engine.

    def start(self, prompt: int = 8) -> Request:
        """A new request; its prompt is reported with its first step."""
        request = Request(next(self._names), Random(self.random.random()))
        request.tokens = [request.random.randrange(VOCAB) for _ in range(prompt)]
        request.anchor = request.random.randrange(VOCAB)
        self.requests[request.name] = request
        return request

    def submission(self, request: Request, depth: int = MAX_DEPTH) -> Submission:
        first = min(request.reported, len(request.tokens))
        tokens = request.tokens[first:]
        return Submission(
            request=request.name,
            first=first,
            tokens=tokens,
            next_token=request.anchor,
            depth=depth,
            rows=rows_of(first, tokens),
            prefix=request.tokens[:first],
        )

    def submit(self, requests: Iterable[Request] | None = None, depth: int = MAX_DEPTH) -> Pending:
        """Report what the requests have, and ask."""
        chosen = list(self.requests.values() if requests is None else requests)
        submissions = [self.submission(request, depth) for request in chosen]
        begun, closed = self.clock(), self.session.ladder.breaker.closed
        step = submitting.submit(self.shared, self.filler, submissions, None)
        waited = self.clock() > begun  # for a send buffer
        self.overrun = max(self.overrun, self.clock() - step.deadline if waited else 0.0)
        self.waits_while_open += waited and not closed
        for request, outcome in zip(chosen, step.outcomes, strict=True):
            request.reported = len(request.tokens)
            state = self.state(request)
            unanswered = state.generation > 0 and state.answered < 0
            stuck = request.late == (state.generation, state.answered)
            self.pressed += outcome is None and (unanswered or stuck)
        self.reopening = max(self.reopening, len(self.session.ladder.reopening))
        return Pending(self.shared, step, submissions)

    def take(self, pending: Pending, check: bool = True) -> dict[int, Outcome]:
        """Wait for a step as an engine does, measure the wait, and look at every draft."""
        begun, waiting = self.clock(), not pending.settled
        closed = self.session.ladder.breaker.closed
        results = pending.result()
        self.overrun = max(self.overrun, self.clock() - pending.deadline if waiting else 0.0)
        self.longest = max(self.longest, self.clock() - begun)
        self.waits_while_open += waiting and not closed
        for name, outcome in results.items():
            self.outcomes.append(outcome)
            request = self.requests.get(name)
            if request is not None and isinstance(outcome, NoDraft) and outcome.reason is Reason.LATE:
                request.late = (self.state(request).generation, self.state(request).answered)
            if not isinstance(outcome, Draft) or request is None:
                continue
            draft = outcome.tokens.tolist()
            if check and not self.is_right(request, draft):
                self.stale += 1
            request.draft = draft
            request.drafts += 1
            state = self.session.ladder.requests.get(name)
            if state is not None:
                request.generations.add(state.generation)
        return results

    def step(self, requests: Iterable[Request] | None = None, depth: int = MAX_DEPTH) -> dict[int, Outcome]:
        """One whole step: the target runs, progress is reported, drafts come or do not."""
        chosen = list(self.requests.values() if requests is None else requests)
        self.sleep(STEP_TIME)
        for request in chosen:
            request.grow()
        return self.take(self.submit(chosen, depth))

    def release(self, request: Request) -> None:
        del self.requests[request.name]
        with self.shared.changed:
            self.session.release(self.clock(), [request.name])

    def state(self, request: Request):
        return self.session.ladder.requests[request.name]

    def until_drafted(self, request: Request, steps: int = 200) -> int:
        """Steps until the request gets a draft again."""
        for count in range(1, steps + 1):
            if isinstance(self.step()[request.name], Draft):
                return count
        raise AssertionError(f"no draft for {request.name} in {steps} steps; {self.reasons(request)}")

    def reasons(self, request: Request) -> str:
        ladder = self.session.ladder
        state = ladder.requests[request.name]
        last = [o.reason for o in self.outcomes[-5:] if isinstance(o, NoDraft)]
        return (
            f"{last}, breaker {ladder.breaker.state} ({ladder.breaker.cause}), "
            f"link {self.session.link.state}, {state.phase}, behind {state.behind}, "
            f"sent {state.sent}, answered {state.answered}"
        )
