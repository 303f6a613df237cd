"""Steps learn, and an interruption changes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sidedraft.training.collect import Source
from sidedraft.training.evaluation import evaluate
from sidedraft.training.features import Features
from sidedraft.training.module import DSparkModule
from sidedraft.training.recipe import Recipe
from sidedraft.training.sizes import draft_sizes
from sidedraft.training.trainer import Trainer
from sidedraft.training.vocabulary import choose_vocabulary
from sidedraft.training.warm_start import warm_start


def trainer(source: Source, features: Features, recipe: Recipe) -> Trainer:
    target = source.target
    vocabulary = choose_vocabulary([features], target.vocab_size, recipe.draft_vocab)
    module = DSparkModule(
        draft_sizes(target, recipe), target.embedding.detach(), target.head[vocabulary.target_ids].detach()
    )
    warm_start(module, target, [features], recipe.seed)
    return Trainer(module, vocabulary, [features], recipe)


def test_the_loss_falls_and_acceptance_rises(source: Source, features: Features, recipe: Recipe) -> None:
    values = {name: getattr(recipe, name) for name in recipe.__struct_fields__}
    longer = Recipe(**{**values, "steps": 100})
    learner = trainer(source, features, longer)
    vocabulary = choose_vocabulary([features], source.target.vocab_size, recipe.draft_vocab)
    before = evaluate(learner.module, vocabulary, features).length
    losses = [learner.advance().total.item() for _ in range(longer.steps)]
    assert sum(losses[-4:]) < 0.4 * sum(losses[:4])
    assert evaluate(learner.module, vocabulary, features).length > before + 0.5


def test_a_resumed_run_equals_an_uninterrupted_one_to_the_bit(
    source: Source, features: Features, recipe: Recipe, tmp_path: Path
) -> None:
    straight = trainer(source, features, recipe)
    for _ in range(7):
        straight.advance()
    first = trainer(source, features, recipe)
    for _ in range(4):
        first.advance()
    first.save(tmp_path / "state.safetensors")
    second = trainer(source, features, recipe)
    second.load(tmp_path / "state.safetensors")
    assert second.step == 4
    assert second.seconds == first.seconds
    for _ in range(3):
        second.advance()
    for (name, one), (_, other) in zip(
        straight.module.named_parameters(), second.module.named_parameters(), strict=True
    ):
        assert torch.equal(one, other), name


def test_a_state_of_another_draft_is_refused(
    source: Source, features: Features, recipe: Recipe, tmp_path: Path
) -> None:
    learner = trainer(source, features, recipe)
    learner.advance()
    learner.save(tmp_path / "state.safetensors")
    values = {name: getattr(recipe, name) for name in recipe.__struct_fields__}
    other = trainer(source, features, Recipe(**{**values, "layers": 1}))
    with pytest.raises(ValueError, match="parameters of another draft"):
        other.load(tmp_path / "state.safetensors")


def test_a_block_of_rows_outside_the_vocabulary_does_not_break_a_step(
    source: Source, features: Features, recipe: Recipe
) -> None:
    values = {name: getattr(recipe, name) for name in recipe.__struct_fields__}
    learner = trainer(source, features, Recipe(**{**values, "draft_vocab": 1}))
    for _ in range(3):
        assert torch.isfinite(learner.advance().total)
    module: DSparkModule = learner.module
    assert all(torch.isfinite(p).all() for p in module.parameters())
