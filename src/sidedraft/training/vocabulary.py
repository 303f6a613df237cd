"""The reduced vocabulary: what a draft can propose."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from sidedraft.training.batches import NO_LABEL
from sidedraft.training.features import Features


@dataclass(frozen=True, slots=True)
class DraftVocabulary:
    """Target ids the draft knows, ascending."""

    target_ids: Tensor
    """int64 [DV]."""
    to_draft: Tensor
    """int64 [V]: draft id, or NO_LABEL."""

    @classmethod
    def of(cls, target_ids: Tensor, vocab: int) -> DraftVocabulary:
        to_draft = torch.full((vocab,), NO_LABEL)
        to_draft[target_ids] = torch.arange(len(target_ids))
        return cls(target_ids, to_draft)

    @property
    def d2t(self) -> Tensor:
        """int64 [DV]: target id minus draft id, as checkpoints store it."""
        return self.target_ids - torch.arange(len(self.target_ids))


def choose_vocabulary(features: Iterable[Features], vocab: int, size: int) -> DraftVocabulary:
    """The `size` tokens seen most often in prompts and answers; unseen ones follow by id, as low ids are the
    common ones in a merged vocabulary."""
    counts = torch.zeros(vocab, dtype=torch.int64)
    for one in features:
        for ids in (one.prefix_ids, *(t.ids for t in one.trajectories)):
            counts += torch.bincount(ids, minlength=vocab)
    order = torch.argsort(counts, descending=True, stable=True)
    return DraftVocabulary.of(order[: min(size, vocab)].sort().values, vocab)
