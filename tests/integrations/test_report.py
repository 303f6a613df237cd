"""The figures of a run: what they count, and that they survive an empty one."""

from __future__ import annotations

import json

import pytest

from sidedraft.integrations.transformers.report import Generation, Report


def test_acceptance_counts_where_a_draft_was_verified() -> None:
    one = Generation([1], list(range(9)), "length", drafted=[4, 4, 0, 2], accepted=[4, 1, 0, 0])
    report = Report([one], seconds=2.0)
    assert report.new_tokens == 9
    assert report.tokens_per_second == 4.5
    assert report.acceptance_length == pytest.approx(1 + 5 / 3)
    assert report.acceptance_by_position == pytest.approx([2 / 3, 1 / 3, 1 / 2, 1 / 2])


def test_an_empty_run_has_figures_too() -> None:
    found = Report().to_json()
    assert found["acceptance_length"] == found["tokens_per_second"] == 0.0
    assert found["acceptance_by_position"] == []


def test_stages_are_samples_by_name_even_when_a_step_fails() -> None:
    report = Report()
    with report.stages.measure("sample"):
        pass
    with pytest.raises(KeyError), report.stages.measure("sample"):
        raise KeyError
    assert report.stages.summary()["sample"]["count"] == 2


def test_json_holds_plain_values() -> None:
    report = Report([Generation([1, 2], [3], "eos", [], [])])
    report.no_draft["late"] += 2
    found = json.loads(json.dumps(report.to_json()))
    assert found["no_draft"] == {"late": 2}
    assert found["generations"][0] == {
        "prompt_tokens": 2,
        "tokens": [3],
        "finish": "eos",
        "drafted": [],
        "accepted": [],
    }
