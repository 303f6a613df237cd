"""Backoff, deadline, breaker, credit and token record, each alone."""

from __future__ import annotations

import statistics
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidedraft.settings import VerifierSettings
from sidedraft.verifier.state.backoff import Backoff
from sidedraft.verifier.state.breaker import Breaker, BreakerState, Cause
from sidedraft.verifier.state.credit import ByteCredit
from sidedraft.verifier.state.deadline import SAMPLES, AdaptiveDeadline
from sidedraft.verifier.state.record import TokenRecord


def breaker(settings: VerifierSettings | None = None) -> Breaker:
    settings = VerifierSettings() if settings is None else settings
    found = Breaker(settings, Backoff(settings.retry_first, settings.retry_cap, Random(1)))
    found.close()
    return found


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_backoff_doubles_up_to_its_cap_and_never_takes_less_than_half(seed: int, count: int) -> None:
    waits = Backoff(0.05, 1.0, Random(seed))
    for level in range(count):
        full = min(1.0, 0.05 * 2**level)
        assert full / 2 <= waits.next() <= full
    waits.reset()
    assert waits.next() <= 0.05


def test_the_deadline_is_the_initial_one_until_enough_was_seen() -> None:
    deadline = AdaptiveDeadline(VerifierSettings())
    for _ in range(7):
        deadline.observe(0.01)
    assert deadline.seconds() == 0.5
    deadline.observe(0.01)
    assert deadline.seconds() == pytest.approx(0.04)


@given(st.lists(st.floats(0.0001, 1.0), min_size=8, max_size=3 * SAMPLES))
def test_the_deadline_is_four_times_the_running_median_within_its_bounds(latencies: list[float]) -> None:
    deadline = AdaptiveDeadline(VerifierSettings())
    for latency in latencies:
        deadline.observe(latency)
    median = statistics.median_high(latencies[-SAMPLES:])
    assert deadline.median == median
    assert deadline.seconds() == min(0.5, max(0.02, 4 * median))


def test_a_fixed_deadline_does_not_adapt() -> None:
    deadline = AdaptiveDeadline(VerifierSettings(deadline=0.1))
    for _ in range(50):
        deadline.observe(0.001)
    assert deadline.seconds() == deadline.longest() == 0.1


def test_the_breaker_opens_after_two_late_steps_in_a_row() -> None:
    found = breaker()
    assert not found.step(0.0, all_late=True)
    assert not found.step(0.0, all_late=False)
    assert not found.step(0.0, all_late=True)
    assert found.step(0.0, all_late=True)
    assert (found.state, found.cause) == (BreakerState.OPEN, Cause.LATE)


def test_only_lateness_is_cured_by_a_probe() -> None:
    found = breaker()
    found.trip(0.0, Cause.NO_SESSION)
    assert not found.probe_due(100.0)
    found.trip(100.0, Cause.LATE)
    assert not found.probe_due(100.0)
    assert found.probe_due(101.0)
    found.probing()
    assert not found.probe_due(200.0), "one probe at a time"


def test_waits_between_probes_shrink_only_after_a_run_of_good_steps() -> None:
    found = breaker()
    for _ in range(8):  # up to the cap
        found.trip(0.0, Cause.LATE)
    found.close()
    found.step(0.0, all_late=False)
    found.trip(0.0, Cause.LATE)
    assert not found.probe_due(0.4)
    found.close()
    for _ in range(8):
        found.step(0.0, all_late=False)
    found.trip(0.0, Cause.LATE)
    assert found.probe_due(0.05)


@given(st.data())
def test_credit_is_never_exceeded_and_frees_buffers_oldest_first(data: st.DataObject) -> None:
    credit = ByteCredit(100)
    sent: list[tuple[int, str]] = []
    owed: list[int] = []
    free: list[str] = []
    for index in range(data.draw(st.integers(1, 40))):
        if owed and data.draw(st.booleans()):
            free += credit.give(owed.pop(data.draw(st.integers(0, len(owed) - 1))))
        else:
            size = data.draw(st.integers(1, 100))
            if credit.fits(size):
                credit.spend(size, f"buffer {index}")
                sent.append((size, f"buffer {index}"))
                owed.append(size)
        assert sum(owed) <= 100
        returned = sum(size for size, _ in sent) - sum(owed)
        assert sum(size for size, _ in sent[: len(free)]) <= returned, "freed before it was acknowledged"
        assert free == [name for _, name in sent][: len(free)]
    while owed:
        free += credit.give(owed.pop())
    assert free == [name for _, name in sent]
    assert credit.fits(100)


def test_more_credit_than_was_spent_gives_no_more_than_all_of_it() -> None:
    credit = ByteCredit(100)
    credit.spend(60, "a")
    assert list(credit.give(10**9)) == ["a"]
    assert credit.fits(100)
    assert not credit.fits(101)


@given(st.lists(st.tuples(st.floats(0, 1), st.lists(st.integers(0, 96), max_size=200)), max_size=20))
def test_the_record_equals_a_list_of_tokens(changes: list[tuple[float, list[int]]]) -> None:
    record = TokenRecord(np.array([1, 2, 3], np.int32))
    expected = [1, 2, 3]
    for where, tokens in changes:
        first = int(where * len(expected))
        expected = expected[:first] + tokens
        record.put(first, np.array(tokens, np.int32))
        assert record.end == len(expected)
        assert record.prefix(record.end).tolist() == expected


def test_a_prefix_is_a_copy() -> None:
    record = TokenRecord(np.array([1, 2, 3], np.int32))
    prefix = record.prefix(3)
    record.put(0, np.array([9, 9], np.int32))
    assert prefix.tolist() == [1, 2, 3]
