"""Histograms: where values fall, and what can be said of a distribution afterwards."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidedraft.metrics import Histogram, Stages, quantile
from sidedraft.wire.figures import BOUNDS_US, STAGES


def test_a_value_on_a_bound_belongs_below_it() -> None:
    histogram = Histogram((10, 20))
    for value in (0, 10, 11, 20, 21, 1000):
        histogram.observe(value)
    assert (histogram.counts, histogram.total) == ([2, 2, 2], 1062)


def test_nothing_is_known_of_no_values() -> None:
    assert quantile((10, 20), [0, 0, 0], 0.5) is None


def test_values_are_taken_as_evenly_spread_inside_a_bucket() -> None:
    counts = [10, 10, 0]
    assert [quantile((10, 30), counts, share) for share in (0.25, 0.5, 0.75, 1.0)] == [5, 10, 20, 30]


def test_what_is_beyond_the_last_bound_counts_as_the_bound() -> None:
    assert quantile((10, 20), [0, 0, 7], 0.5) == 20


@given(
    values=st.lists(st.integers(0, 2_000_000), min_size=1, max_size=50),
    share=st.floats(0.01, 1.0),
)
def test_a_quantile_lies_in_the_bucket_of_the_true_one(values: list[int], share: float) -> None:
    histogram = Histogram(BOUNDS_US)
    for value in values:
        histogram.observe(value)
    found = quantile(BOUNDS_US, histogram.counts, share)
    true = sorted(values)[math.ceil(share * len(values)) - 1]
    low = max((bound for bound in BOUNDS_US if bound < true), default=0)
    high = min((bound for bound in BOUNDS_US if bound >= true), default=low)
    assert found is not None
    assert low <= found <= high
    assert sum(histogram.counts) == len(values)


def test_stages_take_seconds_and_keep_microseconds() -> None:
    stages = Stages()
    stages.observe("client_total", 0.0123)
    stages.observe("client_total", -1e-9)  # clocks of two threads may disagree by that much
    histogram = stages.histograms["client_total"]
    assert (sum(histogram.counts), histogram.total) == (2, 12_300)
    assert set(stages.histograms) == set(STAGES)


def test_an_unknown_stage_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"stage: 'lunch' is not allowed; expected one of metadata_d2h, "):
        Stages().observe("lunch", 1.0)
