"""DSpark's heads: a low-rank bias from the previous token, and an estimate of acceptance."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from sidedraft.drafts.weights import MARKOV_OUTPUT, DraftWeights


@dataclass(frozen=True, slots=True)
class MarkovHead:
    """The vanilla head: W2 W1[previous] is added to a row's base logits."""

    embedding: Tensor
    """W1, [vocab_size, rank], by target id."""
    output: Tensor
    """W2, [draft_vocab_size, rank], multiplied by `logit_scale` as the base logits are."""

    def embed(self, previous: Tensor) -> Tensor:
        """Target ids int64 [B] to [B, rank]."""
        return self.embedding[previous]

    def add_bias(self, logits: Tensor, embedded: Tensor) -> None:
        """Add to logits, [B, draft_vocab_size], in place; embedded: [B, rank]."""
        logits.addmm_(embedded, self.output.t())


@dataclass(frozen=True, slots=True)
class ConfidenceHead:
    """Estimates 1 - TV(target, draft) of a row, that is the chance that its token is accepted. In fp32."""

    weight: Tensor
    """float32 [1, H] or [1, H + rank]"""
    bias: Tensor
    """float32 [1]"""
    with_markov: bool

    def estimate(self, hidden: Tensor, embedded: Tensor | None) -> Tensor:
        """[B, depth, H] and, with_markov, [B, depth, rank] to float32 [B, depth] in (0, 1)."""
        features = hidden if embedded is None else torch.cat((hidden, embedded), dim=-1)
        return F.linear(features.float(), self.weight, self.bias).squeeze(-1).sigmoid()


def build_markov_head(weights: DraftWeights, dtype: torch.dtype, device: torch.device) -> MarkovHead | None:
    """None for a rank of 0."""
    if weights.config.markov is None or weights.config.markov.rank == 0:
        return None
    embedding = weights.body["markov_head.markov_w1.weight"].to(dtype=dtype, device=device, copy=True)
    output = weights.body[MARKOV_OUTPUT].to(dtype=dtype, device=device, copy=True)
    if weights.config.logit_scale != 1.0:
        output = output * weights.config.logit_scale
    return MarkovHead(embedding, output)


def build_confidence_head(weights: DraftWeights, device: torch.device) -> ConfidenceHead | None:
    markov = weights.config.markov
    if markov is None or not markov.confidence:
        return None
    weight, bias = (
        weights.body[f"confidence_head.proj.{name}"].to(dtype=torch.float32, device=device, copy=True)
        for name in ("weight", "bias")
    )
    return ConfidenceHead(weight, bias, markov.confidence_with_markov)
