"""How each format's config.json is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sidedraft.drafts import CheckpointError, Layout, read_config
from support.checkpoints import tiny_draft, tiny_target


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> Path:
    return tiny_target(tmp_path_factory.mktemp("target"))


FORMATS = [
    ("dflash", "zlab"),
    ("dflash", "speculators"),
    ("dspark", "deepspec"),
    ("dspark", "specforge"),
    ("dspark", "speculators"),
]


def edit(folder: Path, **changes: Any) -> Path:
    """Top-level keys replaced; a key `a__b` replaces b inside a; None removes."""
    config = json.loads((folder / "config.json").read_text())
    for key, value in changes.items():
        *outer, last = key.split("__")
        place = config
        for name in outer:
            place = place.setdefault(name, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def zlab(tmp_path: Path, target: Path, **changes: Any) -> Path:
    folder = tiny_draft(tmp_path / "zlab", "dflash", target=target)
    return edit(folder, **{"use_sliding_window": None} | changes)


def deepspec(tmp_path: Path, target: Path, **changes: Any) -> Path:
    return edit(tiny_draft(tmp_path / "deepspec", "dspark", target=target), **changes)


def speculator(tmp_path: Path, target: Path, family: str = "dspark", **changes: Any) -> Path:
    folder = tiny_draft(tmp_path / "speculators", family, target=target, format="speculators")
    edit(folder, transformer_layer_config__use_sliding_window=None)
    return edit(folder, **changes)


@pytest.mark.parametrize(("family", "form"), FORMATS)
def test_one_draft_reads_alike_in_every_format(family: str, form: str, target: Path, tmp_path: Path) -> None:
    config = read_config(tiny_draft(tmp_path, family, target=target, format=form, taps=(1, 4, 6)))
    assert config.family == family
    assert config.taps == (1, 4, 6), "aux ids: z-lab and DeepSpec count layer outputs, one lower"
    assert config.max_depth == 4
    assert config.layout is (Layout.BONUS if family == "dflash" else Layout.ANCHOR)
    assert config.mask_token_id == 96
    assert config.shape.row_width == 3 * 32
    assert config.shape.has_confidence is (family == "dspark")


class TestTaps:
    @pytest.mark.parametrize("ids", [[5, 1, 9], [1, 1, 5], [1, 5, 4]])
    def test_ids_that_do_not_ascend_are_refused(self, ids: list[int], target: Path, tmp_path: Path) -> None:
        for folder, key in (
            (zlab(tmp_path, target, dflash_config__target_layer_ids=ids), "dflash_config.target_layer_ids"),
            (deepspec(tmp_path, target, target_layer_ids=ids), "target_layer_ids"),
            (speculator(tmp_path, target, aux_hidden_state_layer_ids=ids), "aux_hidden_state_layer_ids"),
        ):
            with pytest.raises(CheckpointError, match="strictly ascending") as raised:
                read_config(folder)
            assert raised.value.what == key
            assert raised.value.file == folder / "config.json"

    def test_two_keys_that_agree_are_read_once(self, target: Path, tmp_path: Path) -> None:
        folder = zlab(tmp_path, target, eagle_aux_hidden_state_layer_ids=[1, 3, 5])
        assert read_config(folder).taps == (1, 3, 5)

    def test_two_keys_that_disagree_are_refused(self, target: Path, tmp_path: Path) -> None:
        folder = zlab(tmp_path, target, eagle_aux_hidden_state_layer_ids=[0, 2, 4])
        with pytest.raises(CheckpointError, match="the same taps as eagle_aux_hidden_state_layer_ids"):
            read_config(folder)

    @pytest.mark.parametrize(
        ("layers", "draft_layers", "taps"),
        [(36, 5, (2, 10, 18, 26, 34)), (36, 1, (19,)), (12, 2, (2, 10))],
    )
    def test_the_default_spreads_over_the_target(
        self, layers: int, draft_layers: int, taps: tuple[int, ...], target: Path, tmp_path: Path
    ) -> None:
        """The 5-layer case is that of the public Qwen3-4B drafts."""
        folder = zlab(
            tmp_path,
            target,
            dflash_config__target_layer_ids=None,
            num_target_layers=layers,
            num_hidden_layers=draft_layers,
            layer_types=None,
        )
        assert read_config(folder).taps == taps

    def test_speculators_without_ids_is_refused(self, target: Path, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match="aux_hidden_state_layer_ids: found nothing"):
            read_config(speculator(tmp_path, target, aux_hidden_state_layer_ids=None))


class TestLayout:
    @pytest.mark.parametrize(
        ("flag", "tokens", "layout"),
        [
            (None, 6, Layout.ANCHOR),
            (None, 5, Layout.BONUS),
            (True, 6, Layout.ANCHOR),
            (False, 5, Layout.BONUS),
            (True, 3, Layout.ANCHOR),
            (False, 3, Layout.BONUS),
            (None, 3, None),
            (True, 5, None),
            (False, 6, None),
        ],
    )
    def test_speculators_settles_it_by_depth_and_flag(
        self, flag: bool | None, tokens: int, layout: Layout | None, target: Path, tmp_path: Path
    ) -> None:
        """None: cannot be told, or contradictory, and refused rather than guessed."""
        methods = [{"proposal_type": "greedy", "speculative_tokens": tokens}]
        folder = speculator(
            tmp_path,
            target,
            block_size=6,
            sample_from_anchor=flag,
            speculators_config__proposal_methods=methods,
        )
        if layout is None:
            with pytest.raises(CheckpointError, match="sample_from_anchor"):
                read_config(folder)
        else:
            config = read_config(folder)
            assert (config.layout, config.max_depth) == (layout, 6 if layout is Layout.ANCHOR else 5)

    @pytest.mark.parametrize(
        ("sample", "bonus", "layout"),
        [
            (None, None, Layout.ANCHOR),
            (True, None, Layout.ANCHOR),
            (False, None, Layout.BONUS),
            (None, True, Layout.BONUS),
            (None, False, Layout.ANCHOR),
            (False, True, Layout.BONUS),
            (True, True, None),
            (False, False, None),
        ],
    )
    def test_deepspec_samples_from_the_anchor_unless_it_says_otherwise(
        self, sample: bool | None, bonus: bool | None, layout: Layout | None, target: Path, tmp_path: Path
    ) -> None:
        folder = deepspec(tmp_path, target, sample_from_anchor=sample, dspark_bonus_anchor=bonus)
        if layout is None:
            with pytest.raises(CheckpointError, match="dspark_bonus_anchor"):
                read_config(folder)
        else:
            assert read_config(folder).layout is layout

    def test_a_dflash_block_includes_the_anchor(self, target: Path, tmp_path: Path) -> None:
        config = read_config(zlab(tmp_path, target, dflash_config__block_size=16))
        assert config.max_depth == 15
        assert config.shape.query_rows(15) == 16
        with pytest.raises(CheckpointError, match=r"dflash_config.block_size.*>= 2"):
            read_config(zlab(tmp_path, target, dflash_config__block_size=1))


MIXED = ["sliding_attention", "full_attention"]


class TestAttentionKinds:
    @pytest.mark.parametrize(
        ("changes", "causal"),
        [
            ({}, (True, False)),
            ({"is_causal": False}, (False, False)),
            ({"is_causal": True}, (True, True)),
            ({"dflash_config__causal": False}, (False, False)),
            ({"dflash_config__causal": True}, (True, True)),
            ({"is_causal": False, "dflash_config__causal": True}, (False, False)),
        ],
    )
    def test_zlab_precedence(
        self, changes: dict[str, Any], causal: tuple[bool, ...], target: Path, tmp_path: Path
    ) -> None:
        folder = zlab(tmp_path, target, layer_types=MIXED, sliding_window=8, **changes)
        config = read_config(folder)
        assert (config.causal, config.windows) == (causal, (8, None))
        assert read_config(folder, vllm_compat=True) == config

    @pytest.mark.parametrize(
        ("family", "flag", "ours", "vllm"),
        [
            ("dflash", False, (True, False), (True, True)),
            ("dflash", True, (False, False), (False, False)),
            ("dflash", None, (True, False), (False, False)),
            ("dspark", False, (True, False), (True, False)),
            ("dspark", True, (False, False), (True, False)),
            ("dspark", None, (True, False), (True, False)),
        ],
    )
    def test_speculators_flag_is_about_sliding_layers_only(
        self,
        family: str,
        flag: bool | None,
        ours: tuple[bool, ...],
        vllm: tuple[bool, ...],
        target: Path,
        tmp_path: Path,
    ) -> None:
        folder = speculator(
            tmp_path,
            target,
            family,
            sliding_window_non_causal=flag,
            transformer_layer_config__layer_types=MIXED,
            transformer_layer_config__sliding_window=8,
        )
        assert read_config(folder).causal == ours
        assert read_config(folder, vllm_compat=True).causal == vllm

    def test_use_swa_makes_every_layer_slide(self, target: Path, tmp_path: Path) -> None:
        for kinds in (None, ["full_attention"] * 2):
            folder = zlab(
                tmp_path,
                target,
                layer_types=kinds,
                sliding_window=64,
                dflash_config__use_swa=True,
                dflash_config__swa_window_size=9,
            )
            assert read_config(folder).windows == (9, 9)
        assert read_config(zlab(tmp_path, target, layer_types=MIXED, sliding_window=9)).windows == (9, None)

    def test_full_attention_ignores_a_window(self, target: Path, tmp_path: Path) -> None:
        config = read_config(zlab(tmp_path, target, sliding_window=64))
        assert config.windows == (None, None)
        assert config.shape.window is None

    def test_a_sliding_layer_needs_its_window(self, target: Path, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match="sliding_window: found nothing"):
            read_config(zlab(tmp_path, target, layer_types=MIXED))


class TestRope:
    def test_both_spellings_and_the_default_base(self, target: Path, tmp_path: Path) -> None:
        old = zlab(
            tmp_path,
            target,
            rope_parameters=None,
            rope_theta=5e5,
            rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096},
        )
        rope = read_config(old).backbone.rope
        assert (rope.kind, rope.theta, rope.factor, rope.original_max_position) == ("yarn", 5e5, 4.0, 4096)
        assert rope.attention_factor == pytest.approx(1.138629436)
        assert read_config(old).shape.max_position == 16384, (
            "either reading of max_position_embeddings serves"
        )
        plain = zlab(tmp_path, target, rope_parameters=None)
        assert read_config(plain).backbone.rope.theta == 1e6

    @pytest.mark.parametrize("kind", ["dynamic", "longrope", "proportional", "mrope"])
    def test_other_kinds_are_refused_by_name(self, kind: str, target: Path, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match=f"rope_parameters.rope_type: found '{kind}'"):
            read_config(zlab(tmp_path, target, rope_parameters={"rope_type": kind, "factor": 2.0}))

    def test_ropes_by_layer_are_refused(self, target: Path, tmp_path: Path) -> None:
        ropes = {"full_attention": {"rope_type": "default", "rope_theta": 1e6}}
        with pytest.raises(CheckpointError, match="one rope for all layers"):
            read_config(zlab(tmp_path, target, rope_parameters=ropes))

    def test_a_scaled_kind_needs_its_factor(self, target: Path, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match=r"rope_parameters\.factor: found nothing"):
            read_config(zlab(tmp_path, target, rope_parameters={"rope_type": "linear", "rope_theta": 1e4}))


def test_mask_token_is_found_under_every_name(target: Path, tmp_path: Path) -> None:
    for key in ("mask_token_id", "dspark_noise_token_id", "pard_token", "ptd_token_id"):
        folder = zlab(tmp_path, target, dflash_config__mask_token_id=None, **{key: 5})
        assert read_config(folder).mask_token_id == 5
    assert (
        read_config(zlab(tmp_path, target, dflash_config__mask_token_id=7, mask_token_id=5)).mask_token_id
        == 7
    )


UNSUPPORTED: list[tuple[dict[str, Any], str]] = [
    ({"dflash_config__mask_token_id": 97}, "dflash_config.mask_token_id"),
    ({"dflash_config__mask_token_id": -1}, "dflash_config.mask_token_id"),
    ({"dflash_config__mask_token_id": True}, "dflash_config.mask_token_id"),
    ({"dflash_config__attention_sink_bias": True}, "dflash_config.attention_sink_bias"),
    ({"dflash_config__attention_value_scale": 0.7}, "dflash_config.attention_value_scale"),
    ({"dflash_config__use_aux_hidden_state": False}, "dflash_config.use_aux_hidden_state"),
    ({"is_neox_style": False}, "is_neox_style"),
    ({"rope_is_neox_style": False}, "rope_is_neox_style"),
    ({"aux_hidden_stream": "attn_res"}, "aux_hidden_stream"),
    ({"hidden_act": "gelu"}, "hidden_act"),
    ({"hidden_size": None}, "hidden_size"),
    ({"hidden_size": "32"}, "hidden_size"),
    ({"num_key_value_heads": 3}, "num_key_value_heads"),
    ({"head_dim": 7}, "head_dim"),
    ({"rms_norm_eps": 0.0}, "rms_norm_eps"),
    ({"layer_types": ["full_attention"]}, "layer_types"),
    ({"layer_types": MIXED, "sliding_window": 8, "use_sliding_window": False}, "use_sliding_window"),
    ({"layer_types": MIXED, "sliding_window": 0, "use_sliding_window": True}, "sliding_window"),
    ({"layer_types": ["full_attention", "linear_attention"]}, "layer_types"),
    ({"architectures": ["LlamaForCausalLMEagle3"]}, "architectures"),
    ({"architectures": ["DFlash2DraftModel"]}, "architectures"),
    ({"architectures": "DFlashDraftModel"}, "architectures"),
    ({"model_type": "gemma4_text"}, "model_type"),
    ({"dflash_config": [1]}, "dflash_config"),
]


@pytest.mark.parametrize(("changes", "key"), UNSUPPORTED)
def test_what_is_not_supported_is_refused_by_name(
    changes: dict[str, Any], key: str, target: Path, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError) as raised:
        read_config(zlab(tmp_path, target, **changes))
    assert raised.value.what == key
    assert str(tmp_path) in str(raised.value)
    assert "expected" in str(raised.value)


@pytest.mark.parametrize("head", ["gated", "rnn", "other"])
def test_other_markov_heads_are_refused_by_name(head: str, target: Path, tmp_path: Path) -> None:
    for folder in (
        deepspec(tmp_path, target, markov_head_type=head),
        speculator(tmp_path, target, markov_head_type=head),
    ):
        with pytest.raises(CheckpointError, match=f"markov_head_type: found '{head}', expected vanilla"):
            read_config(folder)


def test_other_speculators_are_refused_by_name(target: Path, tmp_path: Path) -> None:
    with pytest.raises(
        CheckpointError, match="speculators_model_type: found 'eagle3', expected one of dflash"
    ):
        read_config(speculator(tmp_path, target, speculators_model_type="eagle3"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "found nothing, expected a JSON file"),
        (b"{", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[1]", "found list, expected a JSON object"),
        (b"[" * 100_000, "no JSON"),
        (b"{}", "architectures: found nothing"),
    ],
)
def test_a_file_that_is_no_config(content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(CheckpointError, match=message):
        read_config(tmp_path)
