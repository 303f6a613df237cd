"""DSpark as a module that can be trained (facts/draft-families.md, sections 4.1 and 4.3).

The served draft computes the same formulas from gathered K/V (`sidedraft.drafts`); a test holds the two
together. Parameter names are those of the checkpoint.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sidedraft.training.batches import Batch
from sidedraft.training.sizes import DraftSizes

KeysValues = tuple[Tensor, Tensor]


class DSparkModule(nn.Module):
    """A draft with anchor-sampled layout: row j of a block predicts the token at anchor + 1 + j."""

    def __init__(self, sizes: DraftSizes, embedding: Tensor, head: Tensor) -> None:
        """embedding: [V, H]; head: [DV, H], the target head's rows of the draft vocabulary. Both frozen."""
        super().__init__()
        self.sizes = sizes
        H, rank = sizes.hidden, sizes.markov_rank
        self.register_buffer("embedding", embedding, persistent=False)
        self.register_buffer("head", head, persistent=False)
        self.embedding: Tensor
        self.head: Tensor
        self.register_buffer("tap_scale", torch.ones(sizes.row_width), persistent=False)
        self.tap_scale: Tensor
        """[row_width]: `fc` reads aux states times this. Folded into `fc` by `export`."""
        self.fc = _linear(sizes.row_width, H)
        self.hidden_norm = nn.RMSNorm(H, sizes.eps)
        self.layers = nn.ModuleList([_Layer(sizes) for _ in range(sizes.layers)])
        self.norm = nn.RMSNorm(H, sizes.eps)
        self.markov_head = nn.ModuleDict(
            {"markov_w1": nn.Embedding(sizes.vocab, rank), "markov_w2": _linear(rank, len(head))}
        )
        self.confidence_head = nn.ModuleDict({"proj": nn.Linear(H + rank, 1)})
        frequencies = sizes.rope_theta ** -(torch.arange(0, sizes.head_dim, 2) / sizes.head_dim)
        self.register_buffer("_frequencies", frequencies, persistent=False)
        self._frequencies: Tensor

    def block(self, batch: Batch) -> Tensor:
        """Hidden states of all query blocks, [B, anchors * depth, H], after the final norm."""
        prefix = self._context(batch.prefix_aux)[None]
        own = self._context(batch.aux)
        prefix_rope = self._rope(torch.arange(prefix.shape[1]))
        own_rope = self._rope(prefix.shape[1] + torch.arange(own.shape[1]))
        block_rope = self._rope(batch.positions)
        x = self.embedding[batch.tokens]
        for each in self.layers:
            layer = cast(_Layer, each)
            shared = [part.expand(len(own), -1, -1, -1) for part in layer.rows(prefix, prefix_rope)]
            context = [torch.cat(pair, 2) for pair in zip(shared, layer.rows(own, own_rope), strict=True)]
            x = layer(x, block_rope, context, batch.visible)
        hidden: Tensor = self.norm(x)
        return hidden

    def logits(self, hidden: Tensor, previous: Tensor) -> tuple[Tensor, Tensor]:
        """Draft-vocabulary logits [.., DV] and confidence logits [..] of rows whose preceding token is known.

        hidden: [.., H]; previous: int64 [..], target ids.
        """
        bigram = self.markov_head["markov_w1"](previous)
        logits = F.linear(hidden, self.head) + self.markov_head["markov_w2"](bigram)
        confidence = self.confidence_head["proj"](torch.cat([hidden, bigram], -1))[..., 0]
        return logits, confidence

    def _context(self, aux: Tensor) -> Tensor:
        """Aux states [.., row_width] to what context keys and values are computed from, [.., H]."""
        out: Tensor = self.hidden_norm(self.fc(aux * self.tap_scale))
        return out

    def _rope(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = positions[..., None] * self._frequencies
        angles = torch.cat([angles, angles], -1)
        if angles.dim() == 3:
            angles = angles[:, None]  # over heads
        return angles.cos(), angles.sin()


class _Layer(nn.Module):
    def __init__(self, sizes: DraftSizes) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(sizes.hidden, sizes.eps)
        self.self_attn = _Attention(sizes)
        self.post_attention_layernorm = nn.RMSNorm(sizes.hidden, sizes.eps)
        self.mlp = _Mlp(sizes)

    def rows(self, context: Tensor, rope: tuple[Tensor, Tensor]) -> KeysValues:
        """Keys and values of context rows, which pass no norm of the layer's."""
        return self.self_attn.keys_values(context, rope)

    def forward(
        self, x: Tensor, rope: tuple[Tensor, Tensor], context: list[Tensor], visible: Tensor
    ) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rope, context, visible)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class _Attention(nn.Module):
    def __init__(self, sizes: DraftSizes) -> None:
        super().__init__()
        self.head_dim = sizes.head_dim
        self.q_proj = _linear(sizes.hidden, sizes.heads * sizes.head_dim)
        self.k_proj = _linear(sizes.hidden, sizes.kv_heads * sizes.head_dim)
        self.v_proj = _linear(sizes.hidden, sizes.kv_heads * sizes.head_dim)
        self.o_proj = _linear(sizes.heads * sizes.head_dim, sizes.hidden)
        self.q_norm = nn.RMSNorm(sizes.head_dim, sizes.eps)
        self.k_norm = nn.RMSNorm(sizes.head_dim, sizes.eps)

    def keys_values(self, x: Tensor, rope: tuple[Tensor, Tensor]) -> KeysValues:
        """K (normed, rotated) and V of rows [B, n, H]: [B, kv_heads, n, head_dim] each."""
        keys = _rotate(self.k_norm(self._heads(self.k_proj(x))), rope)
        return keys, self._heads(self.v_proj(x))

    def forward(
        self, y: Tensor, rope: tuple[Tensor, Tensor], context: list[Tensor], visible: Tensor
    ) -> Tensor:
        queries = _rotate(self.q_norm(self._heads(self.q_proj(y))), rope)
        own_keys, own_values = self.keys_values(y, rope)
        keys = torch.cat([context[0], own_keys], 2)
        values = torch.cat([context[1], own_values], 2)
        mixed = F.scaled_dot_product_attention(queries, keys, values, attn_mask=visible, enable_gqa=True)
        out: Tensor = self.o_proj(mixed.transpose(1, 2).flatten(2))
        return out

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)


class _Mlp(nn.Module):
    def __init__(self, sizes: DraftSizes) -> None:
        super().__init__()
        self.gate_proj = _linear(sizes.hidden, sizes.inner)
        self.up_proj = _linear(sizes.hidden, sizes.inner)
        self.down_proj = _linear(sizes.inner, sizes.hidden)

    def forward(self, z: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(z)) * self.up_proj(z))
        return out


def _linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def _rotate(x: Tensor, rope: tuple[Tensor, Tensor]) -> Tensor:
    """Rotary embedding over halves; x: [B, heads, n, head_dim]."""
    cos, sin = rope
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat([-high, low], -1) * sin
