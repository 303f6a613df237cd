"""DSpark (dense): DFlash's parallel pass, then a Markov chain over its rows."""

from __future__ import annotations

import torch
from torch import Tensor

from sidedraft.drafts.base import Context, Family, Proposal
from sidedraft.drafts.block_draft import BlockDraft, all_finite
from sidedraft.drafts.markov import MarkovHead, build_confidence_head, build_markov_head
from sidedraft.drafts.weights import DraftWeights


class DSparkDraft(BlockDraft):
    """A loaded dense DSpark draft."""

    family = Family("dspark", rows="rowwise")

    def __init__(self, weights: DraftWeights, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__(weights, dtype, device)
        self.markov = build_markov_head(weights, dtype, device)
        self.confidence = build_confidence_head(weights, device)

    def propose(self, anchors: Tensor, positions: Tensor, depth: int, context: Context) -> Proposal:
        """The greatest biased logit of each row, left to right."""
        hidden = self.predicting_rows(anchors, positions, depth, context)
        logits = self.base_logits(hidden)
        embedded = None
        if self.markov is None:
            best = logits.max(dim=-1)
            tokens, greatest = self.vocabulary.to_target(best.indices), best.values
        else:
            tokens, greatest, embedded = self._chain(self.markov, logits, anchors)
        confidence = None
        if self.confidence is not None:
            confidence = self.confidence.estimate(hidden, embedded if self.confidence.with_markov else None)
        return Proposal(tokens, logits, all_finite(greatest, logits), confidence)

    def _chain(self, markov: MarkovHead, logits: Tensor, anchors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Each row's choice biases the next row, from the anchor on. `logits` receives the biases in place.

        Returns tokens [B, depth], the greatest logit of each row [B, depth], and the embeddings of the tokens
        before them, [B, depth, rank].
        """
        tokens, greatest, embedded = [], [], []
        previous = anchors
        for row in logits.unbind(dim=1):
            embedded.append(markov.embed(previous))
            markov.add_bias(row, embedded[-1])
            best = row.max(dim=-1)
            previous = self.vocabulary.to_target(best.indices)
            tokens.append(previous)
            greatest.append(best.values)
        return torch.stack(tokens, dim=1), torch.stack(greatest, dim=1), torch.stack(embedded, dim=1)
