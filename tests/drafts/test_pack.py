"""Bundles: whole, in an engine's own form, and equal to what they were packed from."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from sidedraft.drafts import CheckpointError, load_draft, pack, read_config
from sidedraft.drafts.block_draft import BlockDraft
from sidedraft.drafts.names import D2T, EMBEDDING, HEAD, expected_shapes
from support.checkpoints import tiny_draft, tiny_target


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> Path:
    return tiny_target(tmp_path_factory.mktemp("target"))


CASES: list[tuple[str, dict[str, Any]]] = [
    ("dflash", {}),
    ("dflash", {"draft_vocab": 20, "windows": (7, None)}),
    ("dflash", {"format": "speculators", "windows": (7, None), "causal": False}),
    ("dspark", {}),
    ("dspark", {"format": "specforge", "draft_vocab": 20}),
    ("dspark", {"format": "speculators", "layout": "bonus", "windows": (7, 7), "causal": True}),
    ("dspark", {"confidence": False}),
]


@pytest.mark.parametrize(("family", "options"), CASES)
def test_a_bundle_is_the_draft(family: str, options: dict[str, Any], target: Path, tmp_path: Path) -> None:
    folder = tiny_draft(tmp_path / "draft", family, target=target, **options)
    written = pack(folder, target, tmp_path / "bundle")
    before, after = load_draft(folder, target), load_draft(tmp_path / "bundle")
    assert written == read_config(folder)
    assert after.shape == before.shape
    assert isinstance(before, BlockDraft)
    assert isinstance(after, BlockDraft)
    assert after.head.equal(before.head)
    assert after.embedding.equal(before.embedding)


@pytest.mark.parametrize(
    ("family", "architecture"), [("dflash", "DFlashDraftModel"), ("dspark", "Qwen3DSparkModel")]
)
def test_the_form_is_the_familys_own(family: str, architecture: str, target: Path, tmp_path: Path) -> None:
    """One config.json at the top without a prefix on any name, as vLLM's loaders of these classes read it."""
    folder = tiny_draft(tmp_path / "draft", family, target=target, format="speculators", draft_vocab=20)
    config = pack(folder, target, tmp_path / "bundle")
    found = json.loads((tmp_path / "bundle" / "config.json").read_text())
    assert found["architectures"] == [architecture]
    assert found["model_type"] == "qwen3"
    assert found["dtype"] == "float32"
    layer_outputs = found["dflash_config"] if family == "dflash" else found
    assert layer_outputs["target_layer_ids"] == [0, 2, 4]
    tensors = load_file(tmp_path / "bundle" / "model.safetensors")
    assert set(tensors) == {*expected_shapes(config), EMBEDDING, HEAD, D2T}
    assert tensors[D2T].equal(load_file(folder / "model.safetensors")[D2T])
    assert {file.name for file in (tmp_path / "bundle").iterdir()} == {"config.json", "model.safetensors"}


def test_stored_types_are_kept(target: Path, tmp_path: Path) -> None:
    folder = tiny_draft(tmp_path / "draft", "dflash", target=target)
    halves = {n: t.to(torch.bfloat16) for n, t in load_file(folder / "model.safetensors").items()}
    save_file(halves, folder / "model.safetensors")
    pack(folder, target, tmp_path / "bundle")
    tensors = load_file(tmp_path / "bundle" / "model.safetensors")
    assert tensors["fc.weight"].dtype is torch.bfloat16
    assert tensors[EMBEDDING].dtype is torch.float32
    assert json.loads((tmp_path / "bundle" / "config.json").read_text())["dtype"] == "bfloat16"


def test_what_other_loaders_ignore_is_folded_in(target: Path, tmp_path: Path) -> None:
    folder = tiny_draft(tmp_path / "draft", "dflash", target=target, overrides={"input_embedding_scale": 0.5})
    torch.save(torch.full((32,), 3.0), folder / "mask_embedding.pt")
    pack(folder, target, tmp_path / "bundle")
    tensors = load_file(tmp_path / "bundle" / "model.safetensors")
    plain = load_file(target / "model.safetensors")["model.embed_tokens.weight"]
    assert tensors[EMBEDDING][:96].equal(plain[:96] * 0.5)
    assert tensors[EMBEDDING][96].tolist() == [1.5] * 32
    assert tensors[HEAD].equal(plain)
    assert read_config(tmp_path / "bundle").input_embedding_scale == 1.0


def test_packing_a_bundle_gives_it_back(target: Path, tmp_path: Path) -> None:
    folder = tiny_draft(tmp_path / "draft", "dspark", target=target, draft_vocab=20)
    pack(folder, target, tmp_path / "one")
    pack(tmp_path / "one", None, tmp_path / "two")
    assert load_draft(tmp_path / "two").identity == load_draft(tmp_path / "one").identity


def test_an_occupied_place_is_left_alone(target: Path, tmp_path: Path) -> None:
    folder = tiny_draft(tmp_path / "draft", "dflash", target=target)
    with pytest.raises(FileExistsError, match="draft: found something"):
        pack(folder, target, folder)
    (tmp_path / "empty").mkdir()
    pack(folder, target, tmp_path / "empty")
    with pytest.raises(FileExistsError):
        pack(folder, target, tmp_path / "empty")


def test_a_failure_leaves_nothing_behind(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_draft(tmp_path / "draft", "dflash", target=target)
    with pytest.raises(CheckpointError, match="or a target's folder"):
        pack(folder, None, tmp_path / "out" / "bundle")

    def full_disk(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(import_module("sidedraft.drafts.pack"), "save_file", full_disk)
    with pytest.raises(OSError, match="No space"):
        pack(folder, target, tmp_path / "out" / "bundle")
    assert list((tmp_path / "out").iterdir()) == []
