"""DFlash: the masks after the anchor are filled in by one parallel pass, each row on its own."""

from __future__ import annotations

from torch import Tensor

from sidedraft.drafts.base import Context, Family, Proposal
from sidedraft.drafts.block_draft import BlockDraft, all_finite


class DFlashDraft(BlockDraft):
    """A loaded DFlash draft."""

    family = Family("dflash", rows="rowwise")

    def propose(self, anchors: Tensor, positions: Tensor, depth: int, context: Context) -> Proposal:
        """The greatest logit of each row."""
        logits = self.base_logits(self.predicting_rows(anchors, positions, depth, context))
        greatest = logits.max(dim=-1)
        return Proposal(
            tokens=self.vocabulary.to_target(greatest.indices),
            logits=logits,
            finite=all_finite(greatest.values, logits),
        )
