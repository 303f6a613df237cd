"""The rotary embedding's keys: `rope_parameters`, or `rope_theta` beside `rope_scaling`."""

from __future__ import annotations

import math

from sidedraft.drafts.configs.draft_config import RopeConfig
from sidedraft.drafts.configs.fields import Fields

DEFAULT_THETA = 1e6
"""What the DFlash and DSpark loaders take when a config names none."""

KINDS = ("default", "linear", "llama3", "yarn")


def read_rope(fields: Fields, max_position: int) -> RopeConfig:
    """The rope of a backbone; another kind than `KINDS` is refused by name."""
    scaling = fields.section("rope_parameters" if fields.has("rope_parameters") else "rope_scaling")
    for per_layer in ("full_attention", "sliding_attention"):
        if scaling.has(per_layer):
            scaling.fail(per_layer, "one rope for all layers")
    theta = scaling.positive_or("rope_theta", fields.positive_or("rope_theta", DEFAULT_THETA))
    key = "rope_type" if scaling.has("rope_type") else "type"
    kind = scaling.text_or(key, "default")
    if kind == "default":
        return RopeConfig("default", theta)
    factor = scaling.positive_or("factor", None)
    if factor is None and kind in KINDS:
        scaling.fail("factor", "the factor by which positions are stretched")
    if kind == "linear":
        return RopeConfig("linear", theta, factor=factor or 1.0)
    original = scaling.integer_or("original_max_position_embeddings", None, low=1) or max_position
    if kind == "llama3":
        low = scaling.positive_or("low_freq_factor", 1.0)
        high = scaling.positive_or("high_freq_factor", 4.0)
        if high <= low:
            scaling.fail("high_freq_factor", f"more than low_freq_factor ({low})")
        return RopeConfig(
            "llama3", theta, factor or 1.0, original, low_freq_factor=low, high_freq_factor=high
        )
    if kind == "yarn":
        return RopeConfig(
            "yarn",
            theta,
            factor or 1.0,
            original,
            beta_fast=scaling.positive_or("beta_fast", 32.0),
            beta_slow=scaling.positive_or("beta_slow", 1.0),
            attention_factor=_attention_factor(scaling, factor or 1.0),
            truncate=scaling.flag_or("truncate", True),
        )
    return scaling.fail(key, "one of " + ", ".join(KINDS))


def stretched(rope: RopeConfig, max_position: int) -> int:
    """Positions the model serves. Configs of yarn give either the length before stretching or the one after;
    the greater of the two readings is right in both cases."""
    if rope.kind == "yarn":
        return max(max_position, int(rope.original_max_position * rope.factor))
    if rope.kind == "linear":
        return int(max_position * rope.factor)
    return max_position


def _attention_factor(scaling: Fields, factor: float) -> float:
    """arXiv 2309.00071, section 3.4: 0.1 ln(s) + 1; `mscale` over `mscale_all_dim` as DeepSeek has it."""
    explicit = scaling.positive_or("attention_factor", None)
    if explicit is not None:
        return explicit
    numerator = scaling.number_or("mscale", 0.0)
    denominator = scaling.number_or("mscale_all_dim", 0.0)
    if numerator and denominator:
        return _mscale(factor, numerator) / _mscale(factor, denominator)
    return _mscale(factor, 1.0)


def _mscale(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1.0 else 0.1 * weight * math.log(factor) + 1.0
