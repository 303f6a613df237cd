"""What the engine tells a server, read from vLLM's configuration and from config files only."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from sidedraft.drafts import load_projection
from sidedraft.integrations.vllm.config import ConfigurationError, VllmSettings
from sidedraft.integrations.vllm.facts import verifier_facts
from sidedraft.targets.facts import read_target_facts
from sidedraft.verifier.facts import VerifierFacts
from support.checkpoints import tiny_draft, tiny_target
from support.vllm_stub import SoloGroup, stub_vllm, vllm_config
from support.vllm_world import Runner

TAPS = (1, 3, 5)
SETTINGS = VllmSettings(address="ipc:///tmp/draft.sock", label="here", namespace="team")


@pytest.fixture(autouse=True)
def stub() -> Iterator[None]:
    with stub_vllm(SoloGroup(), Runner):
        yield


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_target(tmp_path_factory.mktemp("models") / "target")


def config_only(folder: Path, target: Path, family: Literal["dflash", "dspark"], **changes: Any) -> Path:
    """A draft folder as it is on this side: config.json and no weights."""
    made = tiny_draft(folder / "whole", family, target=target, max_depth=4, **changes)
    (folder / "draft").mkdir()
    shutil.copy(made / "config.json", folder / "draft")
    return folder / "draft"


def facts(
    target: Path,
    draft: Path,
    method: str = "dspark",
    depth: int = 4,
    taps: Any = TAPS,
    settings: VllmSettings = SETTINGS,
    **changes: Any,
) -> VerifierFacts:
    config = vllm_config(target=target, draft=draft, method=method, depth=depth, taps=taps, **changes)
    return verifier_facts(config, settings)


@pytest.mark.parametrize(("family", "layout"), [("dspark", "anchor"), ("dflash", "bonus")])
def test_target_and_draft_are_stated_without_any_weights(
    tmp_path: Path, target: Path, family: Literal["dflash", "dspark"], layout: str
) -> None:
    found = facts(target, config_only(tmp_path, target, family), family)
    assert found.target == read_target_facts(target, TAPS)
    assert (found.target.hidden_size, found.target.vocab_size) == (32, 97)
    assert (found.draft.family, found.draft.layout, found.draft.max_depth) == (family, layout, 4)
    assert (found.label, found.namespace, found.max_position) == ("here", "team", 512)


def test_taps_are_those_that_vllm_captures_in_ascending_order(tmp_path: Path, target: Path) -> None:
    found = facts(target, config_only(tmp_path, target, "dspark"), taps=(4, 2))
    assert found.target.taps == (2, 4)


@pytest.mark.parametrize(
    ("dtype", "best"), [(torch.float32, "f32"), (torch.bfloat16, "bf16"), (torch.float16, "f16")]
)
def test_rows_travel_as_the_target_computes_them(
    tmp_path: Path, target: Path, dtype: torch.dtype, best: str
) -> None:
    found = facts(target, config_only(tmp_path, target, "dspark"), model_config__dtype=dtype)
    assert found.row_formats[0] == best


PROJECTED = VllmSettings(address="ipc:///tmp/draft.sock", row_formats=("projected-fp8", "projected"))


def test_projected_rows_need_two_tensors_of_the_draft(tmp_path: Path, target: Path) -> None:
    draft = tiny_draft(tmp_path / "draft", "dspark", target=target, max_depth=4)
    found = facts(target, draft, settings=PROJECTED, model_config__dtype=torch.bfloat16)
    assert found.row_formats == ("projected-fp8", "projected-bf16", "bf16", "f32")
    assert found.projection is not None
    assert found.projection.facts == load_projection(draft).facts
    assert found.projection.fc.dtype == torch.bfloat16


def test_projected_rows_without_weights_stop_the_engine_in_words(tmp_path: Path, target: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"row_formats.*projected-fp8.*expected plain formats, or a"):
        facts(target, config_only(tmp_path, target, "dspark"), settings=PROJECTED)


def test_overridden_configs_leave_the_targets_identity_open(tmp_path: Path, target: Path) -> None:
    draft = config_only(tmp_path, target, "dspark")
    found = facts(target, draft, model_config__hf_overrides={"rope_theta": 1.0})
    assert found.target.model_digest is None


def test_a_target_in_a_form_we_do_not_read_is_stated_by_the_engines_own_sizes(
    tmp_path: Path, target: Path
) -> None:
    draft = config_only(tmp_path, target, "dspark")
    (tmp_path / "other").mkdir()
    found = facts(tmp_path / "other", draft)
    assert (found.target.hidden_size, found.target.vocab_size) == (32, 97)
    assert (found.target.model_digest, found.target.vocab_digest) == (None, None)


def test_independent_ranks_have_labels_of_their_own(tmp_path: Path, target: Path) -> None:
    found = facts(target, config_only(tmp_path, target, "dspark"), parallel_config__data_parallel_index=2)
    assert found.label == "here-2"


def test_every_setting_that_cannot_be_is_named(tmp_path: Path, target: Path) -> None:
    draft = config_only(tmp_path, target, "dspark")
    for changes, words in (
        ({"depth": 5}, "num_speculative_tokens: 5 is not allowed; expected at most 4"),
        ({"method": "dflash"}, "speculative_config.method: 'dflash' is not allowed; expected dspark"),
        ({"taps": None}, "a draft whose config names target layers"),
    ):
        with pytest.raises(ConfigurationError) as caught:
            facts(target, draft, **changes)
        assert words in str(caught.value)
    (draft / "config.json").unlink()
    with pytest.raises(
        ConfigurationError, match=r"speculative_config.model: .*a folder with a draft's config"
    ):
        facts(target, draft)
