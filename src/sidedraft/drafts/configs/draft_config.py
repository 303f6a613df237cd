"""What a draft's config.json says, in one form for all formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from sidedraft.drafts.base import DraftShape, Layout

FamilyName = Literal["dflash", "dspark"]


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary position embedding: half-split over the whole head, at absolute positions."""

    kind: Literal["default", "linear", "llama3", "yarn"]
    theta: float
    factor: float = 1.0
    """By how much positions are stretched (all kinds but `default`)."""
    original_max_position: int = 0
    """Positions of the model before stretching (llama3, yarn)."""
    low_freq_factor: float = 1.0
    """llama3"""
    high_freq_factor: float = 4.0
    """llama3"""
    beta_fast: float = 32.0
    """yarn"""
    beta_slow: float = 1.0
    """yarn"""
    attention_factor: float = 1.0
    """yarn: multiplies cos and sin, at every position."""
    truncate: bool = True
    """yarn: whether the ramp's ends are rounded to whole dimensions."""


@dataclass(frozen=True, slots=True)
class BackboneConfig:
    """The Qwen3-style decoder stack every supported draft is built of."""

    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rms_norm_eps: float
    attention_bias: bool
    rope: RopeConfig
    max_position: int
    vocab_size: int
    """Rows of the input embedding."""


@dataclass(frozen=True, slots=True)
class MarkovConfig:
    """DSpark's sequential head and the confidence head beside it."""

    rank: int
    """0: no Markov head."""
    confidence: bool
    confidence_with_markov: bool
    """Whether the confidence head also reads the previous token's Markov embedding."""


@dataclass(frozen=True, slots=True)
class DraftConfig:
    """A draft as its checkpoint describes it. Hashed into the draft's identity: every field counts."""

    family: FamilyName
    backbone: BackboneConfig
    layout: Layout
    taps: tuple[int, ...]
    """Aux ids, strictly ascending."""
    target_hidden_size: int
    target_vocab_size: int
    """The target's vocabulary; differs from the backbone's when the draft has input rows of its own."""
    draft_vocab_size: int
    mask_token_id: int
    block_size: int
    """Rows of the block it was trained on."""
    windows: tuple[int | None, ...]
    causal: tuple[bool, ...]
    input_embedding_scale: float = 1.0
    logit_scale: float = 1.0
    output_multiplier: float = 1.0
    final_logit_softcapping: float | None = None
    tie_word_embeddings: bool = False
    """The draft's own head, when not shipped, is its own embedding."""
    markov: MarkovConfig | None = None
    """Present exactly for dspark."""

    @property
    def max_depth(self) -> int:
        """Draft tokens of a whole trained block."""
        return self.block_size if self.layout is Layout.ANCHOR else self.block_size - 1

    @property
    def shape(self) -> DraftShape:
        backbone = self.backbone
        return DraftShape(
            layers=backbone.layers,
            heads=backbone.heads,
            kv_heads=backbone.kv_heads,
            head_dim=backbone.head_dim,
            hidden_size=backbone.hidden_size,
            taps=self.taps,
            target_hidden_size=self.target_hidden_size,
            vocab_size=self.target_vocab_size,
            draft_vocab_size=self.draft_vocab_size,
            max_depth=self.max_depth,
            layout=self.layout,
            windows=self.windows,
            causal=self.causal,
            max_position=backbone.max_position,
            has_confidence=self.markov is not None and self.markov.confidence,
        )
