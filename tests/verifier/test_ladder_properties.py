"""Whatever server and network do: nothing stale is applied, no wait past a deadline, drafting resumes."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sidedraft.transport.base import Lane
from sidedraft.transport.fake import CORRUPT, DROP, DUPLICATE, Direction, delayed, overtaken
from sidedraft.verifier.pending import Pending
from sidedraft.verifier.state.outcome import Draft
from support.ladder_world import IMPATIENT, MAX_DEPTH, SETTINGS, STEP_TIME, World

lanes = st.sampled_from(Lane)
directions = st.sampled_from(Direction)
steps_late = st.integers(1, 5).map(lambda steps: steps * STEP_TIME)

HEALING = 12.0
"""Virtual seconds after which drafting must have resumed: a lease, a late_lost, and retries."""


class Ladder(RuleBasedStateMachine):
    """Random lives of requests under random faults, in virtual time."""

    @initialize(seed=st.integers(0, 2**16), fixed=st.booleans(), connect=st.booleans())
    def begin(self, seed: int, fixed: bool, connect: bool) -> None:
        self.world = World(seed, IMPATIENT if fixed else SETTINGS)
        self.pending: list[Pending] = []
        self.corrupted = False
        if connect:
            self.world.connect()
        self.world.start()

    def script(self, lane: Lane, direction: Direction, *fates: object) -> None:
        self.world.channel.links[lane, direction].script.extend(fates)

    # The engine.

    @rule(prompt=st.sampled_from([0, 5, 60, 300]))
    def start(self, prompt: int) -> None:
        if len(self.world.requests) < 8:
            self.world.start(prompt)

    @rule(depth=st.sampled_from([0, 2, MAX_DEPTH]), count=st.integers(1, 4))
    def step(self, depth: int, count: int) -> None:
        for _ in range(count):
            self.world.step(depth=depth)

    @rule(data=st.data())
    def step_some(self, data: st.DataObject) -> None:
        requests = list(self.world.requests.values())
        chosen = [request for request in requests if data.draw(st.booleans())]
        self.world.step(chosen)

    @rule()
    def submit_and_go_on(self) -> None:
        """A pipelined engine: the result is taken after a later step, if ever."""
        for request in self.world.requests.values():
            request.grow()
        self.pending.append(self.world.submit())

    @rule()
    def take_old_result(self) -> None:
        """Drafts of a step that was overtaken must not be there; of the last one they must fit."""
        if self.pending:
            self.world.take(self.pending.pop())
            self.pending.clear()

    @rule(seconds=st.sampled_from([0.001, 0.05, 0.7, 2.5, 6.0]))
    def idle(self, seconds: float) -> None:
        self.world.sleep(seconds)

    @precondition(lambda self: len(self.world.requests) > 1)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.requests)))
        self.world.release(self.world.requests[name])

    @rule(data=st.data(), count=st.integers(1, 80))
    def rewind(self, data: st.DataObject, count: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.requests)))
        request = self.world.requests[name]
        self.pending.clear()  # an engine that rewinds does not use older results
        request.rewind(count)
        self.world.take(self.world.submit([request]))

    # The faults.

    @rule(seconds=steps_late, count=st.integers(1, 4))
    def late(self, seconds: float, count: int) -> None:
        self.script(Lane.CONTROL, Direction.DOWN, *[delayed(seconds)] * count)

    @rule(seconds=st.sampled_from([0.0, 0.004, 0.03, 0.15]))
    def serve_in(self, seconds: float) -> None:
        """Work takes so long from now on."""
        self.world.server.service = seconds

    @rule(lane=lanes, direction=directions, count=st.integers(1, 4))
    def lose(self, lane: Lane, direction: Direction, count: int) -> None:
        self.script(lane, direction, *[DROP] * count)

    @rule(lane=lanes, direction=directions)
    def duplicate(self, lane: Lane, direction: Direction) -> None:
        self.script(lane, direction, DUPLICATE)

    @rule(lane=lanes, direction=directions, seconds=steps_late)
    def reorder(self, lane: Lane, direction: Direction, seconds: float) -> None:
        self.script(lane, direction, overtaken(seconds))

    @rule(lane=lanes, direction=directions)
    def corrupt(self, lane: Lane, direction: Direction) -> None:
        self.corrupted = True
        self.script(lane, direction, CORRUPT)

    @rule(lane=st.sampled_from([None, *Lane]))
    def cut(self, lane: Lane | None) -> None:
        self.world.network.cut(self.world.channel, lane)

    @rule(seconds=st.sampled_from([0.0, 0.02, 0.5]))
    def restart(self, seconds: float) -> None:
        self.world.server.kill()
        self.world.sleep(seconds)
        self.world.server.start()

    @rule()
    def kill_or_start(self) -> None:
        if self.world.server.alive:
            self.world.server.kill()
        else:
            self.world.server.start()

    @rule()
    def stop_or_continue(self) -> None:
        self.world.server.mute = not self.world.server.mute

    # What holds.

    @invariant()
    def nothing_stale_and_nobody_waits_too_long(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        assert world.overrun <= 1e-9
        assert world.waits_while_open == 0
        if not self.corrupted:
            assert world.stale == 0
            assert world.server.confused == []
        ladder = world.session.ladder
        assert len(ladder.reopening) <= SETTINGS.reopen_in_flight
        assert set(ladder.by_id) >= {state.wire_id for state in ladder.requests.values()}

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        world = self.world
        for link in world.channel.links.values():
            link.script.clear()
        world.server.mute = False
        world.server.service = 0.004
        if not world.server.alive:
            world.server.start()
        drafts = {name: request.drafts for name, request in world.requests.items()}
        until = world.clock() + HEALING
        while any(world.requests[name].drafts <= before for name, before in drafts.items()):
            assert world.clock() < until, [world.reasons(r) for r in world.requests.values()]
            for request in world.requests.values():
                if len(request.tokens) > 300:  # the model's context ends
                    request.rewind(len(request.tokens) - 20)
                    self.world.take(world.submit([request]))
            world.step()
        assert all(isinstance(outcome, Draft) for outcome in world.step().values())
        assert not self.corrupted or world.stale <= len(world.outcomes)


TestLadder = pytest.mark.slow(Ladder.TestCase)
TestLadder.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],  # shrinking whole worlds takes minutes
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
