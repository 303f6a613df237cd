"""The dense DSpark format (DeepSpec): Qwen3 keys and the heads' keys, all at the top.

SpecForge writes the same keys inside `dflash_config`, with `architectures: ["DSparkDraftModel"]`. Both often
copy the target's config, so keys that only a target has are not read.
"""

from __future__ import annotations

from typing import Any

from sidedraft.drafts.base import Layout
from sidedraft.drafts.configs import backbone as keys
from sidedraft.drafts.configs.draft_config import DraftConfig
from sidedraft.drafts.configs.fields import Fields
from sidedraft.drafts.configs.layers import read_windows
from sidedraft.drafts.configs.zlab import read_causal, read_taps, write_common

ARCHITECTURE = "Qwen3DSparkModel"
ARCHITECTURES = (ARCHITECTURE, "Qwen3OmniDSparkModel", "DSparkDraftModel")
DEFAULT_BLOCK = 7


def read(top: Fields) -> DraftConfig:
    """A dense DSpark config of either flavour."""
    fields = top.section("dflash_config").over(top)
    keys.refuse_unsupported(fields)
    backbone = keys.read_backbone(fields)
    windows = read_windows(fields, backbone.layers)
    layout = _read_layout(fields)
    return DraftConfig(
        family="dspark",
        backbone=backbone,
        layout=layout,
        taps=read_taps(top, fields, backbone.layers),
        target_hidden_size=fields.integer_or("target_hidden_size", backbone.hidden_size, low=1),
        target_vocab_size=fields.integer_or("target_vocab_size", backbone.vocab_size, low=1),
        draft_vocab_size=fields.integer_or("draft_vocab_size", backbone.vocab_size, low=1),
        mask_token_id=keys.read_mask_token(fields, backbone.vocab_size),
        block_size=keys.read_block_size(fields, layout, DEFAULT_BLOCK),
        windows=windows,
        causal=read_causal(top, windows),
        logit_scale=fields.positive_or("logit_scale", 1.0),
        tie_word_embeddings=top.flag_or("tie_word_embeddings", False),
        markov=keys.read_markov(fields, default_rank=None, default_confidence=False),
    )


def _read_layout(fields: Fields) -> Layout:
    """`sample_from_anchor` (true when absent) and its negation `dspark_bonus_anchor` must agree."""
    bonus = fields.flag_or("dspark_bonus_anchor", None)
    sample = fields.flag_or("sample_from_anchor", bonus is not True)
    if bonus is not None and sample is bonus:
        fields.fail("dspark_bonus_anchor", f"the opposite of sample_from_anchor ({sample})")
    return Layout.ANCHOR if sample else Layout.BONUS


def write(config: DraftConfig) -> dict[str, Any]:
    """The format's form of a dspark config, as `pack` writes it."""
    if config.markov is None:
        raise ValueError("a dspark config has Markov settings")
    return write_common(config) | {
        "architectures": [ARCHITECTURE],
        "target_layer_ids": [tap - 1 for tap in config.taps],
        "mask_token_id": config.mask_token_id,
        "block_size": config.block_size,
        "sample_from_anchor": config.layout is Layout.ANCHOR,
        "dspark_bonus_anchor": config.layout is Layout.BONUS,
        "markov_rank": config.markov.rank,
        "markov_head_type": "vanilla",
        "enable_confidence_head": config.markov.confidence,
        "confidence_head_with_markov": config.markov.confidence_with_markov,
    }
