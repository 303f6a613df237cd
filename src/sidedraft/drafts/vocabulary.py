"""Draft ids and target ids of a draft that proposes from a part of the target's vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from sidedraft.drafts.errors import CheckpointError


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Maps draft ids to target ids."""

    target_ids: Tensor | None
    """int64 [draft_vocab_size]: the target id of every draft id; None when they are the same."""

    def to_target(self, draft_ids: Tensor) -> Tensor:
        """int64 of any shape to int64 of the same shape."""
        return draft_ids if self.target_ids is None else self.target_ids[draft_ids]


def read_target_ids(d2t: Tensor, target_vocab_size: int, file: Path) -> Tensor:
    """Target ids, int64 [draft_vocab_size], from `d2t`, which holds *offsets*: target id = i + d2t[i]."""
    ids = torch.arange(len(d2t)) + d2t.to(torch.int64)
    if len(ids) and not (ids.min() >= 0 and ids.max() < target_vocab_size):
        outside = int(ids.max() if ids.max() >= target_vocab_size else ids.min())
        raise CheckpointError(
            file,
            "tensor d2t",
            found=f"offsets that lead to id {outside}",
            expected=f"offsets that lead to ids below {target_vocab_size}",
        )
    if len(torch.unique(ids)) != len(ids):
        raise CheckpointError(
            file, "tensor d2t", found="two draft ids with one target id", expected="different target ids"
        )
    return ids
