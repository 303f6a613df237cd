"""What is trained is what is served: an exported draft computes the module's numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from sidedraft.drafts.registry import load_draft
from sidedraft.training.batches import anchors_of, make_batch
from sidedraft.training.collect import Source
from sidedraft.training.evaluation import greedy_drafts
from sidedraft.training.export import export, round_weights
from sidedraft.training.features import Features
from sidedraft.training.module import DSparkModule
from sidedraft.training.recipe import Recipe
from sidedraft.training.sizes import draft_sizes
from sidedraft.training.vocabulary import choose_vocabulary
from sidedraft.training.warm_start import warm_start
from support.dense_context import DenseContext


def test_an_exported_draft_gives_the_modules_logits(
    source: Source, features: Features, recipe: Recipe, tmp_path: Path
) -> None:
    target = source.target
    vocabulary = choose_vocabulary([features], target.vocab_size, recipe.draft_vocab)
    module = DSparkModule(
        draft_sizes(target, recipe), target.embedding.detach(), target.head[vocabulary.target_ids].detach()
    )
    warm_start(module, target, [features], recipe.seed)
    with torch.no_grad():
        # A fresh module's bigrams are zero and its norms plain; make everything count.
        generator = torch.Generator().manual_seed(3)
        for parameter in module.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
    round_weights(module)
    export(module, vocabulary, tmp_path / "draft")
    draft = load_draft(tmp_path / "draft", source.directory)
    assert draft.shape.taps == recipe.taps
    for trajectory in features.trajectories[:3]:
        anchors = anchors_of(trajectory)[::4]
        batch = make_batch(
            features, [trajectory], [anchors],
            depth=recipe.depth, mask_token=module.sizes.mask_token, to_draft=vocabulary.to_draft,
        )  # fmt: skip
        with torch.no_grad():
            hidden = module.block(batch).view(len(anchors), recipe.depth, -1)
            tokens = greedy_drafts(module, vocabulary, hidden, trajectory.ids[anchors])
            previous = torch.cat([trajectory.ids[anchors][:, None], tokens[:, :-1]], 1)
            logits, confidence = module.logits(hidden, previous)
        positions = len(features.prefix_ids) + anchors
        aux = torch.cat([features.prefix_aux, trajectory.aux]).float()
        rows = draft.context_rows(aux, torch.arange(len(aux)))
        context = DenseContext(
            draft.shape,
            [rows[:end] for end in positions.tolist()],
            [torch.arange(end) for end in positions.tolist()],
            positions,
            recipe.depth,
        )
        proposal = draft.propose(trajectory.ids[anchors], positions, recipe.depth, context)
        assert torch.equal(proposal.tokens, tokens)
        torch.testing.assert_close(proposal.logits, logits, atol=2e-4, rtol=2e-4)
        assert proposal.confidence is not None
        torch.testing.assert_close(proposal.confidence, confidence.sigmoid(), atol=2e-4, rtol=2e-4)


def test_an_exported_folder_holds_no_head_and_no_embedding(
    source: Source, features: Features, recipe: Recipe, tmp_path: Path
) -> None:
    target = source.target
    vocabulary = choose_vocabulary([features], target.vocab_size, recipe.draft_vocab)
    module = DSparkModule(
        draft_sizes(target, recipe), target.embedding.detach(), target.head[vocabulary.target_ids].detach()
    )
    warm_start(module, target, [features], recipe.seed)
    round_weights(module)
    export(module, vocabulary, tmp_path / "draft")
    config = json.loads((tmp_path / "draft" / "config.json").read_text())
    assert config["target_layer_ids"] == [tap - 1 for tap in recipe.taps]
    size = (tmp_path / "draft" / "model.safetensors").stat().st_size
    parameters = sum(p.numel() for p in module.parameters())
    assert size < 2 * parameters + 8 * recipe.draft_vocab + 8192


def test_another_architecture_than_llamas_is_refused(source: Source, recipe: Recipe) -> None:
    class Other:
        model = source.target.model

        def parameter(self, name: str) -> torch.Tensor:
            raise AttributeError(name)

    with pytest.raises(ValueError, match="has other layers than Llama's"):
        draft_sizes(Other(), recipe)  # type: ignore[arg-type]
