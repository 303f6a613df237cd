"""Features are the target's own greedy answers, made once."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sidedraft.targets.tapped import TappedTarget
from sidedraft.training.collect import Source, collect
from sidedraft.training.decode import PrefixedDecoder
from sidedraft.training.features import Features, Trajectory
from sidedraft.training.prompts import PromptSet
from sidedraft.training.recipe import Recipe
from support.training import PROMPTS, encode


def alone(target: TappedTarget, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Greedy choice and aux state after every token of one sequence."""
    cache = target.new_cache(1, len(tokens))
    step = target.forward(cache, tokens[None], torch.tensor([0]), torch.tensor([len(tokens)]))
    return step.logits[0].argmax(-1), step.aux[0]


def test_answers_and_aux_states_are_the_targets(source: Source, features: Features) -> None:
    assert len(features.trajectories) == len(PROMPTS.prompts)
    prefix = len(features.prefix_ids)
    assert features.prefix_ids.tolist() == encode("abcde:")
    for prompt, one in zip(PROMPTS.prompts, features.trajectories, strict=True):
        assert one.ids[: one.start].tolist() == encode(prompt + "!")
        assert len(one.ids) - one.start == 12 or one.ids[-1] == 2
        choices, aux = alone(source.target, torch.cat([features.prefix_ids, one.ids]))
        assert torch.equal(choices[prefix + one.start - 1 : -1], one.ids[one.start :])
        torch.testing.assert_close(one.aux.float(), aux[prefix:-1], atol=0.02, rtol=0.01)
        torch.testing.assert_close(features.prefix_aux.float(), aux[:prefix], atol=0.02, rtol=0.01)


def test_an_answer_ends_with_the_stop_token(source: Source, features: Features) -> None:
    one = max(features.trajectories, key=lambda t: len(t.ids) - t.start)
    stop = int(one.ids[one.start + 3])
    first = one.ids[one.start :].tolist().index(stop)
    decoder = PrefixedDecoder(source.target, features.prefix_ids.tolist(), frozenset([stop]))
    stopped, other = decoder.answer([one.ids[: one.start].tolist(), encode("y!")], 12)
    assert stopped.ids.tolist() == one.ids[: one.start + first + 1].tolist()
    assert len(stopped.aux) == len(stopped.ids) - 1
    assert len(other.aux) == len(other.ids) - 1


def test_a_second_collection_reads_what_the_first_made(
    source: Source, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = collect(source, PROMPTS, recipe, tmp_path)
    monkeypatch.setattr(PrefixedDecoder, "answer", lambda *_: pytest.fail("made before"))
    assert same(first, collect(source, PROMPTS, recipe, tmp_path))


def test_an_interrupted_collection_makes_only_what_is_missing(
    source: Source, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = collect(source, PROMPTS, recipe, tmp_path)
    [home] = tmp_path.iterdir()
    (home / "000004.safetensors").unlink()
    made: list[int] = []
    answer = PrefixedDecoder.answer

    def counted(self: PrefixedDecoder, prompts: list[list[int]], limit: int) -> list[Trajectory]:
        made.append(len(prompts))
        return answer(self, prompts, limit)

    monkeypatch.setattr(PrefixedDecoder, "answer", counted)
    assert same(whole, collect(source, PROMPTS, recipe, tmp_path))
    assert made == [4]


def test_other_prompts_do_not_reuse_features(source: Source, recipe: Recipe, tmp_path: Path) -> None:
    collect(source, PROMPTS, recipe, tmp_path)
    collect(source, PromptSet(name="seen", prefix="abcde:", prompts=("q",), suffix="!"), recipe, tmp_path)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_prompt_longer_than_the_target_is_named(source: Source, recipe: Recipe, tmp_path: Path) -> None:
    long = PromptSet(name="long", prefix="a", prompts=("b", "c" * source.target.max_position))
    with pytest.raises(ValueError, match="prompts long, prompt 1: 4097 tokens"):
        collect(source, long, recipe, tmp_path)


def test_a_prefix_that_joins_the_prompt_is_named(source: Source, recipe: Recipe, tmp_path: Path) -> None:
    def joined(text: str) -> list[int]:
        return [len(text) % 90 + 3]

    with pytest.raises(ValueError, match="prompt 0: its text joins the prefix's last token"):
        collect(Source(source.directory, source.target, joined), PROMPTS, recipe, tmp_path)


def same(one: Features, other: Features) -> bool:
    return torch.equal(one.prefix_aux, other.prefix_aux) and all(
        torch.equal(a.ids, b.ids) and torch.equal(a.aux, b.aux) and a.start == b.start
        for a, b in zip(one.trajectories, other.trajectories, strict=True)
    )
