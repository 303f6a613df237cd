"""The shape of the draft that is trained: the target's own sizes, with few layers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sidedraft.targets.tapped import TappedTarget
from sidedraft.training.recipe import Recipe


@dataclass(frozen=True, slots=True)
class DraftSizes:
    """Sizes of a DSpark draft. Hidden size and vocabulary are the target's, as are embedding and head."""

    vocab: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    eps: float
    rope_theta: float
    max_position: int
    target_layers: int
    taps: tuple[int, ...]
    layers: int
    depth: int
    markov_rank: int
    mask_token: int
    """Stands at a block's places to be drafted."""

    @property
    def row_width(self) -> int:
        return len(self.taps) * self.hidden


def draft_sizes(target: TappedTarget, recipe: Recipe) -> DraftSizes:
    """Sizes for a target whose layers are like Llama's; others are refused with a ValueError."""
    config: Any = target.model.config
    rope = getattr(config, "rope_parameters", None) or {}
    theta = rope.get("rope_theta", getattr(config, "rope_theta", None))
    try:
        target.parameter("layers.0.self_attn.k_proj.weight")
        target.parameter("layers.0.mlp.gate_proj.weight")
    except AttributeError:
        theta = None
    if theta is None:
        raise ValueError(
            "training starts from the target's own attention and feed-forward weights; "
            f"{type(target.model).__name__} has other layers than Llama's"
        )
    heads = config.num_attention_heads
    return DraftSizes(
        vocab=target.vocab_size,
        hidden=target.hidden_size,
        inner=config.intermediate_size,
        heads=heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or heads,
        head_dim=getattr(config, "head_dim", None) or target.hidden_size // heads,
        eps=config.rms_norm_eps,
        rope_theta=float(theta),
        max_position=target.max_position,
        target_layers=target.layers,
        taps=target.taps,
        layers=recipe.layers,
        depth=recipe.depth,
        markov_rank=recipe.markov_rank,
        # Any token that answers do not hold would do; the lowest is a special one in common vocabularies.
        mask_token=0,
    )
