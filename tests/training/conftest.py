"""A tiny target with random weights, and what it answers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sidedraft.targets.tapped import TappedTarget
from sidedraft.training.collect import Source, collect
from sidedraft.training.features import Features
from sidedraft.training.recipe import Recipe
from support.checkpoints import tiny_target
from support.training import PROMPTS, VOCAB, encode


@pytest.fixture(scope="session")
def target_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_target(tmp_path_factory.mktemp("target") / "t", layers=6, vocab=VOCAB)


@pytest.fixture(scope="session")
def recipe() -> Recipe:
    return Recipe(
        taps=(1, 3, 5), layers=2, depth=4, markov_rank=8, draft_vocab=64, steps=24, sequences=3, anchors=4,
        warmup=4, learning_rate=5e-3, max_new_tokens=12, decode_batch=4,
    )  # fmt: skip


@pytest.fixture(scope="session")
def source(target_folder: Path, recipe: Recipe) -> Source:
    return Source(target_folder, TappedTarget.load(target_folder, recipe.taps), encode)


@pytest.fixture(scope="session")
def features(source: Source, recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Features:
    torch.manual_seed(0)
    return collect(source, PROMPTS, recipe, tmp_path_factory.mktemp("features"))
