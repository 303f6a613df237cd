"""The tie rule: equal logits may swap two tokens, nothing else may differ."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sidedraft.integrations.transformers.compare import Difference, Verdict, judge
from sidedraft.integrations.transformers.loop import generate
from sidedraft.integrations.transformers.options import Options
from sidedraft.targets.tapped import TappedTarget
from support.checkpoints import tiny_target

PROMPT = [5, 9, 11]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_target(tmp_path_factory.mktemp("target"), tied=False)


@pytest.fixture
def target(folder: Path) -> TappedTarget:
    return TappedTarget.load(folder, ())


def reference(target: TappedTarget) -> list[int]:
    return generate(target, [PROMPT], Options(max_new_tokens=8)).generations[0].tokens


def test_equal_outputs_need_no_forward(target: TappedTarget, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = reference(target)
    monkeypatch.setattr(target, "forward", lambda *_, **__: pytest.fail("nothing to look at"))
    verdict = judge(target, [PROMPT, PROMPT], [tokens, []], [tokens, []])
    assert (verdict.identical, verdict.ok) == (2, True)


def test_a_swap_of_the_two_best_tokens_of_equal_logits_is_a_tie(target: TappedTarget) -> None:
    tokens = reference(target)
    twin = next(t for t in range(97) if t not in tokens)
    head = target.model.get_output_embeddings().weight.data
    head[twin] = head[tokens[3]] + 1e-6
    verdict = judge(target, [PROMPT], [tokens], [[*tokens[:3], twin, 1, 1, 1, 1]])
    [difference] = verdict.differences
    assert (difference.place, difference.reference, difference.output) == (3, tokens[3], twin)
    assert difference.tie
    assert verdict.ok
    assert "1 ties" in str(verdict)


def test_the_second_best_token_by_a_margin_is_a_difference(target: TappedTarget) -> None:
    tokens = reference(target)
    step = target.forward(
        target.new_cache(1, 4), torch.tensor([[*PROMPT, tokens[0]]]), torch.tensor([0]), torch.tensor([4])
    )
    best = step.logits[0, -1].topk(2)
    second = int(best.indices[1])
    verdict = judge(target, [PROMPT], [tokens], [[tokens[0], second]])
    [difference] = verdict.differences
    assert difference.gap == pytest.approx(float(best.values[0] - best.values[1]), abs=1e-4)
    assert not difference.tie
    assert not verdict.ok
    assert "DIFFERENT" in str(verdict)


def test_any_other_token_is_a_difference_whatever_the_gap(target: TappedTarget) -> None:
    tokens = reference(target)
    head = target.model.get_output_embeddings().weight.data
    twin, other = (t for t in range(60, 62))
    head[twin] = head[tokens[0]]
    verdict = judge(target, [PROMPT], [tokens], [[other, *tokens[1:]]])
    assert verdict.differences[0].gap == float("inf")
    assert not verdict.ok


@pytest.mark.parametrize("cut", [0, 5])
def test_an_output_that_ends_early_or_late_is_a_difference(target: TappedTarget, cut: int) -> None:
    tokens = reference(target)
    assert not judge(target, [PROMPT], [tokens], [tokens[:cut]]).ok
    assert not judge(target, [PROMPT], [tokens[:cut]], [tokens]).ok


@pytest.mark.parametrize(
    ("prompts", "ties", "ok"), [(3, 1, True), (3, 2, False), (100, 2, True), (100, 3, False)]
)
def test_ties_are_allowed_for_one_prompt_or_two_in_a_hundred(prompts: int, ties: int, ok: bool) -> None:
    assert Verdict(prompts, tuple(Difference(i, 0, 1, 2, 1e-4) for i in range(ties))).ok is ok


def test_counts_must_match_and_the_target_must_be_float32(target: TappedTarget) -> None:
    with pytest.raises(ValueError, match="2 references"):
        judge(target, [PROMPT], [[1], [2]], [[1]])
    with pytest.raises(ValueError, match="bfloat16"):
        judge(TappedTarget(target.model.bfloat16(), ()), [PROMPT], [[1]], [[1]])
