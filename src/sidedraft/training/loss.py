"""What a draft is trained for: saying what the target says, and knowing when it will not."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from sidedraft.training.batches import NO_LABEL, Batch
from sidedraft.training.module import DSparkModule
from sidedraft.training.recipe import Recipe


@dataclass(slots=True)
class Loss:
    """The loss of a batch and how well its rows did."""

    total: Tensor
    """Scalar, to be differentiated."""
    hits: Tensor
    """float [K]: share of rows, by place in the block, whose best token was right given true ones before."""


def batch_loss(module: DSparkModule, batch: Batch, recipe: Recipe) -> Loss:
    """Cross-entropy on the target's greedy tokens, the Markov head fed with true ones, each row weighted by
    exp(-j / position_decay); plus binary cross-entropy of the confidence against the row's own hit."""
    logits, confidence = module.logits(module.block(batch), batch.previous)
    blocks = batch.labels.shape[1] // recipe.depth
    weight = torch.exp(-torch.arange(recipe.depth) / recipe.position_decay).repeat(blocks)
    counted = weight * (batch.truth != NO_LABEL)
    labelled = counted * (batch.labels != NO_LABEL)
    surprise = F.cross_entropy(
        logits.flatten(0, 1), batch.labels.clamp_min(0).flatten(), reduction="none"
    ).view_as(batch.labels)
    hit = ((logits.detach().argmax(-1) == batch.labels) & (batch.labels != NO_LABEL)).float()
    doubt = F.binary_cross_entropy_with_logits(confidence, hit, reduction="none")
    total = (surprise * labelled).sum() / labelled.sum().clamp_min(1e-9)
    total = total + recipe.confidence_weight * (doubt * counted).sum() / counted.sum().clamp_min(1e-9)
    there = (batch.truth != NO_LABEL).float().view(-1, recipe.depth).sum(0).clamp_min(1)
    return Loss(total, hit.view(-1, recipe.depth).sum(0) / there)
