"""What `pack` writes reads back as what was packed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sidedraft.drafts import Layout, read_config
from sidedraft.drafts.configs import BackboneConfig, DraftConfig, MarkovConfig, RopeConfig, deepspec, zlab

positive = st.floats(0.125, 1e6)


@st.composite
def ropes(draw: st.DrawFn) -> RopeConfig:
    kind = draw(st.sampled_from(["default", "linear", "llama3", "yarn"]))
    rope = RopeConfig(kind, draw(positive))
    if kind != "default":
        rope = replace(rope, factor=float(draw(st.integers(1, 64))))
    if kind in ("llama3", "yarn"):
        rope = replace(rope, original_max_position=draw(st.integers(1, 1 << 16)))
    if kind == "llama3":
        rope = replace(
            rope, low_freq_factor=draw(st.floats(0.5, 2)), high_freq_factor=draw(st.floats(2.5, 8))
        )
    if kind == "yarn":
        rope = replace(
            rope, beta_fast=draw(positive), attention_factor=draw(positive), truncate=draw(st.booleans())
        )
    return rope


@st.composite
def backbones(draw: st.DrawFn) -> BackboneConfig:
    rope = draw(ropes())
    kv_heads = draw(st.integers(1, 4))
    served = draw(st.integers(1, 1 << 20))
    if rope.kind == "linear":
        served = int(served * rope.factor)
    if rope.kind == "yarn":
        served = max(served, int(rope.original_max_position * rope.factor))
    return BackboneConfig(
        hidden_size=draw(st.integers(8, 8192)),
        intermediate_size=draw(st.integers(1, 1 << 16)),
        layers=draw(st.integers(1, 6)),
        heads=kv_heads * draw(st.integers(1, 4)),
        kv_heads=kv_heads,
        head_dim=2 * draw(st.integers(1, 128)),
        rms_norm_eps=draw(st.floats(1e-9, 0.5)),
        attention_bias=draw(st.booleans()),
        rope=rope,
        max_position=served,
        vocab_size=draw(st.integers(1000, 2000)),
    )


@st.composite
def configs(draw: st.DrawFn) -> DraftConfig:
    backbone = draw(backbones())
    window = draw(st.integers(1, 4096))
    slides = draw(st.lists(st.booleans(), min_size=backbone.layers, max_size=backbone.layers))
    windows = tuple(window if one else None for one in slides)
    flag = draw(st.sampled_from([None, True, False]))
    layout = draw(st.sampled_from(Layout))
    dspark = draw(st.booleans())
    config = DraftConfig(
        family="dspark" if dspark else "dflash",
        backbone=backbone,
        layout=layout,
        taps=tuple(sorted(draw(st.sets(st.integers(1, 90), min_size=1, max_size=6)))),
        target_hidden_size=draw(st.integers(1, 8192)),
        target_vocab_size=draw(st.integers(900, 1000)),
        draft_vocab_size=draw(st.integers(1, 1000)),
        mask_token_id=draw(st.integers(0, 999)),
        block_size=draw(st.integers(2, 16)),
        windows=windows,
        causal=tuple(slides) if flag is None else (flag,) * backbone.layers,
        logit_scale=draw(positive),
    )
    if dspark:
        with_markov = draw(st.booleans())
        return replace(config, markov=MarkovConfig(draw(st.integers(1, 512)), with_markov, with_markov))
    return replace(
        config,
        output_multiplier=draw(positive),
        final_logit_softcapping=draw(st.none() | positive),
        input_embedding_scale=draw(positive),
    )


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(config=configs())
def test_writing_and_reading_loses_nothing(config: DraftConfig, tmp_path: Path) -> None:
    written = deepspec.write(config) if config.family == "dspark" else zlab.write(config)
    (tmp_path / "config.json").write_text(json.dumps(written))
    assert read_config(tmp_path) == config
