"""What DFlash and DSpark share around the backbone: the query block, the head, the vocabulary."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import fields, is_dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from sidedraft.drafts.backbone import build_backbone
from sidedraft.drafts.base import Context, Family, Proposal
from sidedraft.drafts.projection import ContextProjection
from sidedraft.drafts.vocabulary import Vocabulary
from sidedraft.drafts.weights import DraftWeights


class BlockDraft(ABC):
    """Base of the families that propose from one parallel pass over a block of masks.

    A `base.Draft` once `propose` is given. Holds no state between calls.
    """

    family: Family

    def __init__(self, weights: DraftWeights, dtype: torch.dtype, device: torch.device) -> None:
        """Cast and place the weights. Copies them, so that no file stays mapped."""
        self.config = weights.config
        self.shape = weights.config.shape
        self.identity = weights.digest
        self.dtype = dtype
        self.device = device
        self.backbone = build_backbone(weights.config, weights.body, dtype, device)
        # [vocab_size, H] and [draft_vocab_size, H]; one tensor when they are tied
        self.embedding = weights.embedding.to(dtype=dtype, device=device, copy=True)
        tied = weights.head.data_ptr() == weights.embedding.data_ptr()
        if tied and weights.head.shape == weights.embedding.shape:
            self.head = self.embedding
        else:
            self.head = weights.head.to(dtype=dtype, device=device, copy=True)
        if self.config.input_embedding_scale != 1.0:
            self.embedding = self.embedding * self.config.input_embedding_scale
        ids = weights.target_ids
        self.vocabulary = Vocabulary(None if ids is None else ids.to(device))

    def context_rows(self, aux: Tensor, positions: Tensor) -> Tensor:
        """See `base.Draft`."""
        return self.backbone.context_rows(aux, positions)

    @property
    def projection(self) -> ContextProjection | None:
        """See `base.Draft`."""
        return self.backbone.projection

    def projected_rows(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """See `base.Draft`."""
        return self.backbone.projected_rows(hidden, positions)

    @abstractmethod
    def propose(self, anchors: Tensor, positions: Tensor, depth: int, context: Context) -> Proposal:
        """See `base.Draft`. Raises ValueError for a depth beyond the trained block."""

    def predicting_rows(self, anchors: Tensor, positions: Tensor, depth: int, context: Context) -> Tensor:
        """Hidden states, [B, depth, H], that the drafts are read from.

        The block is the anchor and masks after it. In the bonus layout the anchor's row predicts nothing.
        Raises ValueError for a depth beyond the trained block.
        """
        if not 1 <= depth <= self.shape.max_depth:
            raise ValueError(f"depth: {depth} is not allowed; expected 1 to {self.shape.max_depth}")
        rows = self.shape.query_rows(depth)
        masks = self.embedding[self.config.mask_token_id].expand(len(anchors), rows - 1, -1)
        block = torch.cat((self.embedding[anchors].unsqueeze(1), masks), dim=1)
        return self.backbone.forward(block, positions, context)[:, rows - depth :]

    def base_logits(self, hidden: Tensor) -> Tensor:
        """[..., H] to [..., draft_vocab_size]: scaled, then soft-capped."""
        logits = F.linear(hidden, self.head)
        scale = self.config.logit_scale * self.config.output_multiplier
        if scale != 1.0:
            logits = logits * scale
        cap = self.config.final_logit_softcapping
        return logits if cap is None else torch.tanh(logits / cap) * cap

    def weight_bytes(self) -> int:
        """See `base.Draft`. A tensor used twice (tied embedding and head) counts once."""
        storages = [tensor.untyped_storage() for tensor in _tensors(tuple(vars(self).values()))]
        return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())


def all_finite(greatest: Tensor, logits: Tensor) -> Tensor:
    """bool [B]: whether no logit is NaN or infinite.

    greatest: [B, depth], the greatest logit of each row; logits: [B, depth, V]. NaN carries through both
    extremes, so that two reductions tell what a full `isfinite` would.
    """
    return (greatest.isfinite() & logits.amin(dim=-1).isfinite()).all(dim=-1)


def _tensors(part: object) -> list[Tensor]:
    """All tensors in a tree of dataclasses and tuples."""
    if isinstance(part, Tensor):
        return [part]
    if isinstance(part, tuple):
        return [found for item in part for found in _tensors(item)]
    if isinstance(part, ContextProjection):
        return [part.fc, part.norm]
    if is_dataclass(part):
        return [found for field in fields(part) for found in _tensors(getattr(part, field.name))]
    return []
