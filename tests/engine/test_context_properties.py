"""For any sequence of events attention is given exactly the accepted rows that are present, in order."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from support.engine_simulation import (
    KINDS,
    LONGEST,
    MAX_DEPTH,
    MAX_REQUESTS,
    Pair,
    Sending,
    Simulation,
    random_life,
)

LENGTHS = st.one_of(st.integers(0, 5), st.integers(0, 70))
PREFIXES = st.one_of(st.just(0), st.sampled_from([16, 32, 48, 64]), st.integers(0, 100))
SENDINGS = st.builds(
    Sending,
    skip=st.one_of(st.just(0), st.just(0), st.integers(0, 20)),
    count=st.one_of(st.just(LONGEST), st.just(LONGEST), st.integers(0, 40)),
    depth=st.integers(0, MAX_DEPTH),
)
KEYS = st.sampled_from([b"", b"", b"adapter"])
RARELY = st.sampled_from([False, False, False, False, True])


class ContextMachine(RuleBasedStateMachine):
    @initialize(kind=st.sampled_from(sorted(KINDS)))
    def start(self, kind: str) -> None:
        self.simulation = Simulation(**KINDS[kind])

    def pick(self, data: st.DataObject) -> Pair:
        return data.draw(st.sampled_from(self.simulation.pairs))

    @precondition(lambda self: len(self.simulation.pairs) < MAX_REQUESTS)
    @rule(
        text=st.integers(0, 2),
        first=PREFIXES,
        count=LENGTHS,
        sending=SENDINGS,
        key=KEYS,
        private=RARELY,
        unshared=RARELY,
        again=st.booleans(),
    )
    def open(self, text, first, count, sending, key, private, unshared, again) -> None:
        how = {"context_key": key, "private": private, "lookup": not unshared}
        self.simulation.open(text, first, count, sending, again=again, **how)

    @precondition(lambda self: self.simulation.pairs)
    @rule(data=st.data(), count=LENGTHS, sending=SENDINGS)
    def extend(self, data, count, sending) -> None:
        self.simulation.extend(self.pick(data), count, sending)

    @precondition(lambda self: self.simulation.pairs)
    @rule(data=st.data(), back=st.integers(0, 80), count=LENGTHS, text=st.integers(0, 2), sending=SENDINGS)
    def rewind(self, data, back, count, text, sending) -> None:
        self.simulation.rewind(self.pick(data), back, count, text, sending)

    @precondition(lambda self: self.simulation.pairs)
    @rule(data=st.data())
    def release(self, data) -> None:
        self.simulation.release(self.pick(data))

    @precondition(lambda self: self.simulation.waiting and len(self.simulation.flights) < 2)
    @rule()
    def launch(self) -> None:
        self.simulation.launch()

    @precondition(lambda self: self.simulation.flights)
    @rule()
    def finish(self) -> None:
        self.simulation.finish()

    @invariant()
    def memory_and_blocks_are_right(self) -> None:
        if hasattr(self, "simulation"):
            self.simulation.check_memory()
            self.simulation.check_blocks()

    def teardown(self) -> None:
        if hasattr(self, "simulation"):
            self.simulation.end()


TestContext = ContextMachine.TestCase
TestContext.settings = settings(
    max_examples=80, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("kind", sorted(KINDS))
@pytest.mark.parametrize("seed", range(2))
def test_long_random_lives(kind: str, seed: int) -> None:
    """What short sequences do not reach: many requests over blocks that were used before."""
    simulation = random_life(kind, seed, events=400)
    assert simulation.compared > 50
