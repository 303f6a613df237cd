"""What a block's rows see, and the attention over it.

Grouped-query attention is computed by folding the heads that share a K/V head into the row dimension: their
rows see the same columns, so that K and V are read once and never repeated in memory.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from sidedraft.drafts.base import Context


def visibility(
    context: Context, row_positions: Tensor, window: int | None, *, causal: bool, group: int
) -> Tensor:
    """The mask of one kind of layer: bool [B, 1, Q x group or 1, S], True where visible.

    row_positions: int64 [B, Q], absolute. A column is visible when it is present and, under a window, less
    than `window` positions away, before the row or (bidirectional) after it. Causal rows see nothing later.
    """
    present = context.present.unsqueeze(1)
    if window is None and not causal:
        return present.unsqueeze(1)
    distance = row_positions.unsqueeze(2) - context.positions.unsqueeze(1)
    seen = present
    if causal:
        seen = seen & (distance >= 0)
    if window is not None:
        seen = seen & ((distance if causal else distance.abs()) < window)
    return seen.repeat_interleave(group, dim=1).unsqueeze(1)


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Softmax attention, scaled by head_dim^-0.5.

    query: [B, Q, heads, head_dim]; keys, values: [B, kv_heads, S, head_dim]; mask as from `visibility`.
    Returns [B, Q, heads x head_dim].
    """
    B, Q, heads, head_dim = query.shape
    kv_heads = keys.shape[1]
    group = heads // kv_heads
    rows = (
        query.view(B, Q, kv_heads, group, head_dim).transpose(1, 2).reshape(B, kv_heads, Q * group, head_dim)
    )
    out = F.scaled_dot_product_attention(rows, keys, values, attn_mask=mask)
    return out.view(B, kv_heads, Q, group, head_dim).transpose(1, 2).reshape(B, Q, heads * head_dim)


def masks_by_kind(
    context: Context,
    row_positions: Tensor,
    windows: tuple[int | None, ...],
    causal: tuple[bool, ...],
    group: int,
) -> list[Tensor]:
    """One mask a layer; layers of one kind share theirs."""
    made: dict[tuple[int | None, bool], Tensor] = {}
    for kind in zip(windows, causal, strict=True):
        if kind not in made:
            made[kind] = visibility(context, row_positions, kind[0], causal=kind[1], group=group)
    return [made[kind] for kind in zip(windows, causal, strict=True)]


def block_positions(anchors: Tensor, rows: int) -> Tensor:
    """Absolute positions of query blocks: int64 [B] to int64 [B, rows]."""
    return anchors.unsqueeze(1) + torch.arange(rows, device=anchors.device)
