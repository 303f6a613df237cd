"""The decoder stack that DFlash and DSpark share: Qwen3 layers whose K/V comes from two sources.

Accepted positions give K/V from the target's aux states (`context_rows`), the query block from its own hidden
states (`forward`). Formulas: docs/drafts.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from sidedraft.drafts.attention import attend, block_positions, masks_by_kind
from sidedraft.drafts.base import Context
from sidedraft.drafts.configs import DraftConfig
from sidedraft.drafts.norms import rms_norm
from sidedraft.drafts.projection import ContextProjection
from sidedraft.drafts.rope import Rope, build_rope, rotate


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's weights. Projections that read the same input are one matrix."""

    input_norm: Tensor
    qkv: Tensor
    """[(heads + 2 kv_heads) x head_dim, H]: all queries, then keys, then values."""
    qkv_bias: Tensor | None
    qk_norm: Tensor
    """[heads + kv_heads, head_dim]: the query norm once a query head, then the key norm once a K/V head."""
    output: Tensor
    output_bias: Tensor | None
    post_norm: Tensor
    gate_up: Tensor
    """[2 x intermediate, H]"""
    down: Tensor


@dataclass(frozen=True, slots=True)
class Backbone:
    """Weights and forward passes. Stateless."""

    config: DraftConfig
    projection: ContextProjection
    layers: tuple[Layer, ...]
    key_norms: Tensor
    """[layers, 1, head_dim]"""
    final_norm: Tensor
    rope: Rope

    def context_rows(self, aux: Tensor, positions: Tensor) -> Tensor:
        """K/V of accepted positions: [n, row_width] and int64 [n] to [n, layers, 2, kv_heads, head_dim].

        Row-wise: no row depends on another. There is no input norm on this path, only the projection's.
        """
        return self.projected_rows(self.projection(aux), positions)

    def projected_rows(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """The same of aux states that went through the projection already, [n, H]."""
        c = self.config.backbone
        first = c.heads * c.head_dim
        rows = torch.stack(
            [
                F.linear(
                    hidden, layer.qkv[first:], None if layer.qkv_bias is None else layer.qkv_bias[first:]
                )
                for layer in self.layers
            ],
            dim=1,
        ).view(len(hidden), c.layers, 2, c.kv_heads, c.head_dim)
        cos, sin = (table[:, None, None] for table in self.rope.tables(positions, hidden.dtype))
        rows[:, :, 0] = rotate(rms_norm(rows[:, :, 0], self.key_norms, c.rms_norm_eps), cos, sin)
        return rows

    def forward(self, x: Tensor, anchors: Tensor, context: Context) -> Tensor:
        """Query blocks through all layers: x [B, Q, H], anchors int64 [B] (absolute positions of row 0) to
        [B, Q, H] after the final norm."""
        c = self.config.backbone
        positions = block_positions(anchors, x.shape[1])
        cos, sin = (table.unsqueeze(2) for table in self.rope.tables(positions, x.dtype))
        masks = masks_by_kind(
            context, positions, self.config.windows, self.config.causal, c.heads // c.kv_heads
        )
        for i, layer in enumerate(self.layers):
            qkv = F.linear(rms_norm(x, layer.input_norm, c.rms_norm_eps), layer.qkv, layer.qkv_bias)
            qkv = qkv.view(*positions.shape, c.heads + 2 * c.kv_heads, c.head_dim)
            qk, values = torch.split(qkv, [c.heads + c.kv_heads, c.kv_heads], dim=2)
            qk = rotate(rms_norm(qk, layer.qk_norm, c.rms_norm_eps), cos, sin)
            query, keys = torch.split(qk, [c.heads, c.kv_heads], dim=2)
            context.write_block(i, keys, values)
            seen = attend(query, context.keys(i), context.values(i), masks[i])
            x = x + F.linear(seen, layer.output, layer.output_bias)
            gate, up = F.linear(rms_norm(x, layer.post_norm, c.rms_norm_eps), layer.gate_up).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        return rms_norm(x, self.final_norm, c.rms_norm_eps)


def build_backbone(
    config: DraftConfig, body: dict[str, Tensor], dtype: torch.dtype, device: torch.device
) -> Backbone:
    """Fuse, cast and place the tensors of `weights.DraftWeights.body`. Copies: no file stays mapped."""

    def put(*names: str) -> Tensor:
        parts = [body[name].to(dtype) for name in names]
        whole = torch.cat(parts) if len(parts) > 1 else parts[0].clone()
        return whole.to(device)

    c = config.backbone
    layers = []
    for i in range(c.layers):
        at, attn = f"layers.{i}.", f"layers.{i}.self_attn."
        query_norm, key_norm = put(attn + "q_norm.weight"), put(attn + "k_norm.weight")
        projections = [attn + name for name in ("q_proj", "k_proj", "v_proj")]
        layers.append(
            Layer(
                input_norm=put(at + "input_layernorm.weight"),
                qkv=put(*(name + ".weight" for name in projections)),
                qkv_bias=put(*(name + ".bias" for name in projections)) if c.attention_bias else None,
                qk_norm=torch.cat((query_norm.expand(c.heads, -1), key_norm.expand(c.kv_heads, -1))),
                output=put(attn + "o_proj.weight"),
                output_bias=put(attn + "o_proj.bias") if c.attention_bias else None,
                post_norm=put(at + "post_attention_layernorm.weight"),
                gate_up=put(at + "mlp.gate_proj.weight", at + "mlp.up_proj.weight"),
                down=put(at + "mlp.down_proj.weight"),
            )
        )
    return Backbone(
        config=config,
        projection=ContextProjection(config, body, dtype, device),
        layers=tuple(layers),
        key_norms=torch.stack([layer.qk_norm[-1:] for layer in layers]),
        final_norm=put("norm.weight"),
        rope=build_rope(c.rope, c.head_dim, device),
    )
