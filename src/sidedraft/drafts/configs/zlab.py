"""The original DFlash format (z-lab): Qwen3 keys at the top, `dflash_config` beside them.

Reference implementation: the package `dflash` 0.1.0. A key of `dflash_config` goes before the same key at
the top, but for `is_causal`, which exists at the top only.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from sidedraft.drafts.base import Layout
from sidedraft.drafts.configs import backbone as keys
from sidedraft.drafts.configs.draft_config import DraftConfig
from sidedraft.drafts.configs.fields import Fields
from sidedraft.drafts.configs.layers import FULL, SLIDING, Windows, by_layer_kind, read_windows

ARCHITECTURE = "DFlashDraftModel"
DEFAULT_BLOCK = 16


def read(top: Fields) -> DraftConfig:
    """A `DFlashDraftModel` config."""
    fields = top.section("dflash_config").over(top)
    keys.refuse_unsupported(fields)
    backbone = keys.read_backbone(fields)
    windows = read_windows(fields, backbone.layers)
    layout = Layout.ANCHOR if fields.flag_or("sample_from_anchor", False) else Layout.BONUS
    return DraftConfig(
        family="dflash",
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
        input_embedding_scale=fields.number_or("input_embedding_scale", 1.0),
        logit_scale=fields.positive_or("logit_scale", 1.0),
        output_multiplier=fields.positive_or("output_multiplier", 1.0),
        final_logit_softcapping=fields.number_or("final_logit_softcapping", 0.0) or None,
        tie_word_embeddings=top.flag_or("tie_word_embeddings", False),
    )


def read_taps(top: Fields, fields: Fields, draft_layers: int) -> tuple[int, ...]:
    """Aux ids, from whichever keys are there; keys that disagree are refused.

    `eagle_aux_hidden_state_layer_ids` and `layer_ids` hold aux ids; `target_layer_ids` and
    `dspark_target_layer_ids` hold indices of layers whose *output* is tapped, which is one more as an aux id.
    """
    nested = top.section("dflash_config")
    found = [
        (keys.read_taps(source, key, offset=offset), source, key)
        for source, key, offset in (
            (top, "eagle_aux_hidden_state_layer_ids", 0),
            (nested, "target_layer_ids", 1),
            (top, "dspark_target_layer_ids", 1),
            (top, "target_layer_ids", 1),
            (nested, "layer_ids", 0),
        )
    ]
    present = [item for item in found if item[0] is not None]
    for taps, source, key in present[1:]:
        if taps != present[0][0]:
            source.fail(key, f"the same taps as {present[0][2]} (aux ids {present[0][0]})")
    if present and present[0][0] is not None:
        return present[0][0]
    return _default_taps(fields, draft_layers)


def _default_taps(fields: Fields, draft_layers: int) -> tuple[int, ...]:
    """Layer outputs spread over the target as the reference spreads them."""
    n = fields.integer_or("num_target_layers", None, low=1)
    if n is None:
        fields.fail("target_layer_ids", "the target's layers that are tapped (or num_target_layers)")
    if draft_layers == 1:
        return (n // 2 + 1,)
    ids = tuple(round(1 + i * (n - 4) / (draft_layers - 1)) for i in range(draft_layers))
    if any(a >= b for a, b in pairwise(ids)):
        fields.fail("num_target_layers", f"room for {draft_layers} different taps")
    return tuple(i + 1 for i in ids)


def read_causal(top: Fields, windows: Windows) -> tuple[bool, ...]:
    """`is_causal`, else `dflash_config.causal`: said by the checkpoint for all its layers, full ones too.
    Without either, sliding layers are causal and full ones bidirectional."""
    explicit = top.flag_or("is_causal", top.section("dflash_config").flag_or("causal", None))
    if explicit is not None:
        return (explicit,) * len(windows)
    return by_layer_kind(windows, sliding_causal=True)


def write(config: DraftConfig) -> dict[str, Any]:
    """The format's form of a dflash config, as `pack` writes it."""
    inner = {
        "mask_token_id": config.mask_token_id,
        "target_layer_ids": [tap - 1 for tap in config.taps],
        "block_size": config.block_size,
        "sample_from_anchor": config.layout is Layout.ANCHOR,
        "input_embedding_scale": config.input_embedding_scale,
        "output_multiplier": config.output_multiplier,
        "final_logit_softcapping": config.final_logit_softcapping,
    }
    return write_common(config) | {
        "architectures": [ARCHITECTURE],
        "block_size": config.block_size,
        "dflash_config": {key: value for key, value in inner.items() if value is not None},
    }


def write_common(config: DraftConfig) -> dict[str, Any]:
    """The keys that this format and DeepSpec's write alike."""
    backbone, rope = config.backbone, config.backbone.rope
    parameters: dict[str, Any] = {"rope_type": rope.kind, "rope_theta": rope.theta}
    if rope.kind != "default":
        parameters["factor"] = rope.factor
    if rope.kind in ("llama3", "yarn"):
        parameters["original_max_position_embeddings"] = rope.original_max_position
    if rope.kind == "llama3":
        parameters |= {"low_freq_factor": rope.low_freq_factor, "high_freq_factor": rope.high_freq_factor}
    if rope.kind == "yarn":
        parameters |= {
            "beta_fast": rope.beta_fast,
            "beta_slow": rope.beta_slow,
            "attention_factor": rope.attention_factor,
            "truncate": rope.truncate,
        }
    common: dict[str, Any] = {
        "model_type": "qwen3",
        "hidden_size": backbone.hidden_size,
        "intermediate_size": backbone.intermediate_size,
        "num_hidden_layers": backbone.layers,
        "num_attention_heads": backbone.heads,
        "num_key_value_heads": backbone.kv_heads,
        "head_dim": backbone.head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": backbone.rms_norm_eps,
        "attention_bias": backbone.attention_bias,
        "rope_parameters": parameters,
        "max_position_embeddings": _written_max_position(config),
        "vocab_size": backbone.vocab_size,
        "tie_word_embeddings": False,
        "layer_types": [SLIDING if width else FULL for width in config.windows],
        "sliding_window": next((width for width in config.windows if width), None),
        "use_sliding_window": any(config.windows),
        "target_hidden_size": config.target_hidden_size,
        "target_vocab_size": config.target_vocab_size,
        "draft_vocab_size": config.draft_vocab_size,
        "logit_scale": config.logit_scale,
    }
    if config.causal != by_layer_kind(config.windows, sliding_causal=True):
        common["is_causal"] = config.causal[0]
    return common


def _written_max_position(config: DraftConfig) -> int:
    """Undoes `rope.stretched`, which reading will do again."""
    rope = config.backbone.rope
    if rope.kind == "linear":
        return int(config.backbone.max_position / rope.factor)
    return config.backbone.max_position
