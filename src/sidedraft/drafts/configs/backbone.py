"""The keys that all formats share: the decoder stack and what nobody here supports."""

from __future__ import annotations

from itertools import pairwise

from sidedraft.drafts.base import Layout
from sidedraft.drafts.configs.draft_config import BackboneConfig, MarkovConfig
from sidedraft.drafts.configs.fields import Fields
from sidedraft.drafts.configs.rope import read_rope, stretched


def read_backbone(fields: Fields) -> BackboneConfig:
    """The Qwen3 keys. partial_rotary_factor and mrope keys are ignored: configs copied from the target's
    carry them, and the reference implementations rotate the whole head."""
    if fields.text_or("hidden_act", "silu") != "silu":
        fields.fail("hidden_act", "silu")
    hidden = fields.integer("hidden_size", low=1)
    heads = fields.integer("num_attention_heads", low=1)
    kv_heads = fields.integer_or("num_key_value_heads", heads, low=1)
    if heads % kv_heads:
        fields.fail("num_key_value_heads", f"a divisor of num_attention_heads ({heads})")
    head_dim = fields.integer_or("head_dim", hidden // heads, low=2)
    if head_dim % 2:
        fields.fail("head_dim", "an even number, for half-split rotary embedding")
    max_position = fields.integer("max_position_embeddings", low=1)
    rope = read_rope(fields, max_position)
    return BackboneConfig(
        hidden_size=hidden,
        intermediate_size=fields.integer("intermediate_size", low=1),
        layers=fields.integer("num_hidden_layers", low=1),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        rms_norm_eps=fields.positive_or("rms_norm_eps", 1e-6),
        attention_bias=fields.flag_or("attention_bias", False),
        rope=rope,
        max_position=stretched(rope, max_position),
        vocab_size=fields.integer("vocab_size", low=1),
    )


def refuse_unsupported(fields: Fields) -> None:
    """Settings that change the formula and that no family here implements: refused by name, never ignored."""
    for key in (
        "attention_sink_bias",
        "add_swa_attention_sink_bias",
        "enable_qwen35_gated_q_proj",
        "fc_norm",
        "norm_before_fc",
    ):
        if fields.flag_or(key, False):
            fields.fail(key, "false or absent: it is not supported")
    for key in ("is_neox_style", "rope_is_neox_style"):
        if not fields.flag_or(key, True):
            fields.fail(key, "true or absent: interleaved rotary embedding is not supported")
    if not fields.flag_or("use_aux_hidden_state", True):
        fields.fail("use_aux_hidden_state", "true or absent: a draft without aux states is not supported")
    if fields.number_or("attention_value_scale", 1.0) != 1.0:
        fields.fail("attention_value_scale", "1 or absent: scaled values are not supported")
    if fields.text_or("aux_hidden_stream", "residual") != "residual":
        fields.fail("aux_hidden_stream", "residual or absent")


def read_taps(fields: Fields, key: str, *, offset: int) -> tuple[int, ...] | None:
    """Aux ids from a key that counts `offset` lower (1 for layer outputs). None when the key is absent.

    Verifiers deliver aux states ascending and without repeats, whatever the config's order, and the columns
    of `fc` follow that order: ids that are not strictly ascending cannot be served.
    """
    ids = fields.integers(key)
    if ids is None:
        return None
    if any(a >= b for a, b in pairwise(ids)):
        fields.fail(key, "layer ids in strictly ascending order")
    return tuple(i + offset for i in ids)


def read_mask_token(fields: Fields, vocab_size: int) -> int:
    """The id that fills the block after its anchor; it needs a row in the input embedding."""
    keys = ("mask_token_id", "dspark_noise_token_id", "pard_token", "ptd_token_id")
    key = next((key for key in keys if fields.has(key)), keys[0])
    token = fields.integer(key)
    if token >= vocab_size:
        fields.fail(key, f"an id below vocab_size ({vocab_size})")
    return token


def read_block_size(fields: Fields, layout: Layout, default: int) -> int:
    """Rows of a trained block, the anchor's included."""
    low = 1 if layout is Layout.ANCHOR else 2
    return fields.integer_or("block_size", default, low=low)


def read_markov(fields: Fields, *, default_rank: int | None, default_confidence: bool) -> MarkovConfig:
    """DSpark's heads. Only the vanilla Markov head exists in any serving engine."""
    rank = fields.integer_or("markov_rank", default_rank)
    if rank is None:
        fields.fail("markov_rank", "the rank of the Markov head")
    if fields.text_or("markov_head_type", "vanilla") != "vanilla":
        fields.fail("markov_head_type", "vanilla")
    confidence = fields.flag_or("enable_confidence_head", default_confidence)
    with_markov = fields.flag_or("confidence_head_with_markov", default_confidence) and confidence
    if with_markov and rank == 0:
        fields.fail("markov_rank", "more than 0, as confidence_head_with_markov is set")
    return MarkovConfig(rank=rank, confidence=confidence, confidence_with_markov=with_markov)
