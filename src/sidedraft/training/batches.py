"""From trajectories to query blocks: which anchors, what each row may see, what it should say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from sidedraft.training.features import Features, Trajectory

NO_LABEL = -1


@dataclass(slots=True)
class Batch:
    """Query blocks of B trajectories, A anchors each, K rows a block, over context of P + C rows."""

    prefix_aux: Tensor
    """[P, row_width], shared."""
    aux: Tensor
    """[B, C, row_width], zero behind a trajectory's end."""
    tokens: Tensor
    """int64 [B, A * K]: anchor, then mask tokens."""
    positions: Tensor
    """int64 [B, A * K], absolute."""
    visible: Tensor
    """bool [B, 1, A * K, P + C + A * K]."""
    previous: Tensor
    """int64 [B, A * K], target ids: the true token before the one that a row predicts."""
    labels: Tensor
    """int64 [B, A * K], draft ids; NO_LABEL behind the answer's end and outside the draft vocabulary."""
    truth: Tensor
    """int64 [B, A * K], target ids; NO_LABEL behind the answer's end."""


def anchors_of(trajectory: Trajectory) -> Tensor:
    """All anchors, as indices into `ids`: answer tokens that have a successor. int64 [n]."""
    return torch.arange(trajectory.start, len(trajectory.ids) - 1)


def make_batch(
    features: Features,
    trajectories: Sequence[Trajectory],
    anchors: Sequence[Tensor],
    *,
    depth: int,
    mask_token: int,
    to_draft: Tensor,
) -> Batch:
    """One batch. anchors: per trajectory int64 [A], the same A for all. to_draft: int64 [V], draft ids or
    NO_LABEL."""
    prefix = len(features.prefix_ids)
    chosen = torch.stack(list(anchors))
    B, A = chosen.shape
    C = max(len(t.aux) for t in trajectories)
    aux = torch.zeros(B, C, features.prefix_aux.shape[1])
    ids = torch.full((B, C + 1 + depth), NO_LABEL)
    for index, one in enumerate(trajectories):
        aux[index, : len(one.aux)] = one.aux
        ids[index, : len(one.ids)] = one.ids
    steps = torch.arange(depth)
    places = (chosen[..., None] + steps).flatten(1)
    truth = ids.gather(1, places + 1)
    tokens = torch.full((B, A, depth), mask_token)
    tokens[..., 0] = ids.gather(1, chosen)
    before_anchor = torch.arange(C) < chosen.repeat_interleave(depth, 1)[..., None]
    block = torch.arange(A).repeat_interleave(depth)
    same_block = (block[:, None] == block).expand(B, -1, -1)
    shared = torch.ones(B, A * depth, prefix, dtype=torch.bool)
    return Batch(
        prefix_aux=features.prefix_aux.float(),
        aux=aux,
        tokens=tokens.flatten(1),
        positions=prefix + places,
        visible=torch.cat([shared, before_anchor, same_block], 2)[:, None],
        previous=ids.gather(1, places).clamp_min(0),
        labels=torch.where(truth >= 0, to_draft[truth.clamp_min(0)], NO_LABEL),
        truth=truth,
    )
