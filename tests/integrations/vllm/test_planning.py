"""From batch columns to progress: accepted rows only, and when a draft is worth asking for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidedraft.integrations.vllm.planning import Columns, progress, sound

LENGTH = 64


def columns(*requests: dict[str, int], tokens: list[int] | None = None) -> Columns:
    """One column entry a request: scheduled, rejected, end, prompt, limit, next."""
    scheduled = np.array([one["scheduled"] for one in requests], np.int32)
    return Columns(
        starts=np.concatenate([[0], np.cumsum(scheduled)[:-1]]).astype(np.int32),
        scheduled=scheduled,
        rejected=np.array([one.get("rejected", 0) for one in requests], np.int32),
        ends=np.array([one["end"] for one in requests], np.int32),
        next_tokens=np.array([one.get("next", 1) for one in requests], np.int32),
        prompts=np.array([one.get("prompt", 5) for one in requests], np.int32),
        limits=np.array([one.get("limit", 1000) for one in requests], np.int32),
        tokens=np.array(tokens if tokens is not None else [1] * int(scheduled.sum()), np.int32),
    )


def test_the_first_scheduled_less_rejected_rows_are_kept() -> None:
    found = progress(
        columns({"scheduled": 5, "rejected": 3, "end": 12}, {"scheduled": 8, "end": 8, "prompt": 20}),
        depth=4,
        max_model_len=LENGTH,
    )
    assert found.kept.tolist() == [2, 8]
    assert found.firsts.tolist() == [10, 0]
    assert found.decoding.tolist() == [True, False]
    assert found.depths.tolist() == [4, 0]


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ({"end": 19, "prompt": 20}, 0),  # one token of the prompt is left: nothing was sampled
        ({"end": 20, "prompt": 20}, 4),
        ({"end": 20, "limit": 22}, 0),  # 21 tokens are known, the last one comes by itself
        ({"end": 20, "limit": 23}, 4),
        ({"end": LENGTH - 6}, 4),
        ({"end": LENGTH - 4}, 3),  # drafts at the last three positions
        ({"end": LENGTH - 3}, 2),
        ({"end": LENGTH - 2}, 0),  # one more token fits, and comes by itself
        ({"end": LENGTH - 1}, 0),
    ],
)
def test_when_a_draft_is_worth_asking_for(what: dict[str, int], expected: int) -> None:
    found = progress(columns({"scheduled": 1, **what}), depth=4, max_model_len=LENGTH)
    assert found.depths.tolist() == [expected]


@pytest.mark.parametrize(
    "wrong", [{"rejected": 3, "scheduled": 2}, {"rejected": -1}, {"end": 1, "scheduled": 2}]
)
def test_columns_that_contradict_each_other_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="rejected"):
        progress(columns({"scheduled": 1, "end": 7} | wrong), depth=4, max_model_len=LENGTH)


def test_an_empty_batch_is_nothing() -> None:
    assert progress(columns(), depth=4, max_model_len=LENGTH).kept.size == 0


requests = st.fixed_dictionaries(
    {
        "first": st.integers(0, 40),
        "kept": st.integers(0, 9),
        "rejected": st.integers(0, 5),
        "prompt": st.integers(1, 50),
        "limit": st.integers(2, 100),
    }
)


@given(found=st.lists(requests, min_size=1, max_size=6), depth=st.integers(0, 7))
def test_drafts_never_leave_the_engine_and_all_that_ask_ask_alike(found: list[Any], depth: int) -> None:
    batch = columns(
        *(
            {"scheduled": one["kept"] + one["rejected"], "end": one["first"] + one["kept"], **one}
            for one in found
        )
    )
    gained = progress(batch, depth=depth, max_model_len=LENGTH)
    assert gained.firsts.tolist() == [one["first"] for one in found]
    assert gained.kept.tolist() == [one["kept"] for one in found]
    for end, asked, decoding in zip(batch.ends, gained.depths, gained.decoding, strict=True):
        assert 0 <= asked <= depth
        assert end + asked < LENGTH
        assert decoding or not asked
        if asked:
            assert asked == depth or end + asked == LENGTH - 1


@given(
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    data=st.data(),
)
def test_only_requests_with_an_id_out_of_range_are_unsound(lengths: list[int], data: st.DataObject) -> None:
    ids = st.sampled_from([0, 5, 96, 97, -1])
    tokens = [data.draw(st.lists(ids, min_size=count, max_size=count)) for count in lengths]
    nexts = [data.draw(ids) for _ in lengths]
    batch = columns(
        *({"scheduled": count, "end": 9, "next": token} for count, token in zip(lengths, nexts, strict=True)),
        tokens=[one for own in tokens for one in own],
    )
    expected = [all(0 <= one < 97 for one in [*own, token]) for own, token in zip(tokens, nexts, strict=True)]
    assert sound(batch, 97).tolist() == expected
