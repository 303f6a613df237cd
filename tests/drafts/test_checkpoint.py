"""Folders of safetensors files, well-formed and not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from sidedraft.drafts import CheckpointError
from sidedraft.drafts.checkpoint import Checkpoint
from support.checkpoints import write_checkpoint

WEIGHTS = {name: torch.full((2, 3), float(i)) for i, name in enumerate("abcde")}


def shards(path: Path) -> Path:
    return write_checkpoint(path, {}, WEIGHTS, shards=3)


def point(folder: Path, name: str, place: object) -> None:
    """Change where the index says a tensor is."""
    file = folder / "model.safetensors.index.json"
    index = json.loads(file.read_text())
    index["weight_map"][name] = place
    file.write_text(json.dumps(index))


@pytest.mark.parametrize("count", [1, 3])
def test_one_file_and_shards_read_alike(count: int, tmp_path: Path) -> None:
    with Checkpoint(write_checkpoint(tmp_path, {}, WEIGHTS, shards=count)) as checkpoint:
        assert checkpoint.names == set(WEIGHTS)
        for name, value in WEIGHTS.items():
            assert checkpoint.floats(name, 2, None).equal(value)
            assert checkpoint.shape(name) == (2, 3)


def test_values_outlive_the_checkpoint(tmp_path: Path) -> None:
    with Checkpoint(shards(tmp_path)) as checkpoint:
        values = {name: checkpoint.floats(name, 2, 3) for name in WEIGHTS}
    assert all(values[name].equal(WEIGHTS[name]) for name in WEIGHTS)


def test_a_single_file_of_another_name_is_taken(tmp_path: Path) -> None:
    save_file(WEIGHTS, tmp_path / "draft.safetensors")
    with Checkpoint(tmp_path) as checkpoint:
        assert checkpoint.names == set(WEIGHTS)
    save_file(WEIGHTS, tmp_path / "other.safetensors")
    with pytest.raises(CheckpointError, match="found 2 safetensors files without an index"):
        Checkpoint(tmp_path)


def test_a_shard_that_nobody_needs_may_be_absent(tmp_path: Path) -> None:
    (shards(tmp_path) / "model-00002-of-00003.safetensors").unlink()
    with Checkpoint(tmp_path) as checkpoint:
        assert checkpoint.floats("a", 2, 3).equal(WEIGHTS["a"])
        with pytest.raises(CheckpointError, match=r"model-00002-of-00003\.safetensors: file: found nothing"):
            checkpoint.floats("b", 2, 3)


@pytest.mark.parametrize(
    "place",
    [
        "../outside.safetensors",
        "/etc/model.safetensors",
        "deep/../../outside.safetensors",
        "..\\outside.safetensors",
        "pytorch_model.bin",
        "",
        7,
    ],
)
def test_an_index_cannot_lead_out_of_the_folder(place: object, tmp_path: Path) -> None:
    folder = shards(tmp_path / "inside")
    save_file(WEIGHTS, tmp_path / "outside.safetensors")
    point(folder, "a", place)
    with pytest.raises(CheckpointError) as raised:
        Checkpoint(folder)
    assert raised.value.file == folder / "model.safetensors.index.json"
    assert raised.value.what == "weight_map.a"


def test_an_index_that_names_the_wrong_shard(tmp_path: Path) -> None:
    point(shards(tmp_path), "a", "model-00002-of-00003.safetensors")
    with (
        Checkpoint(tmp_path) as checkpoint,
        pytest.raises(CheckpointError, match="tensor a: found nothing, expected the tensor that"),
    ):
        checkpoint.floats("a", 2, 3)


@pytest.mark.parametrize("keep", [0, 4, 60, -1])
def test_a_truncated_file_is_named(keep: int, tmp_path: Path) -> None:
    file = write_checkpoint(tmp_path, {}, WEIGHTS) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(CheckpointError, match="expected a whole safetensors file") as raised:
        Checkpoint(tmp_path)
    assert raised.value.file == file


def test_a_pickled_checkpoint_is_not_opened(tmp_path: Path) -> None:
    torch.save(WEIGHTS, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"expected model\.safetensors"):
        Checkpoint(tmp_path)


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="expected a folder"):
        Checkpoint(tmp_path / "none")


def test_wrong_shape_missing_and_quantised_tensors_are_told_apart(tmp_path: Path) -> None:
    weights = WEIGHTS | {
        "q": torch.ones(2, 3, dtype=torch.int8),
        "f8": torch.ones(2, 3).to(torch.float8_e4m3fn),
    }
    with Checkpoint(write_checkpoint(tmp_path, {}, weights)) as checkpoint:
        with pytest.raises(CheckpointError, match=r"tensor a: found shape \[2, 3\], expected shape \[2, 4\]"):
            checkpoint.floats("a", 2, 4)
        with pytest.raises(CheckpointError, match=r"tensor a: found shape \[2, 3\], expected shape \[any\]"):
            checkpoint.floats("a", None)
        with pytest.raises(CheckpointError, match="tensor z: found nothing, expected a weight"):
            checkpoint.floats("z", 2, 3)
        for name, kind in (("q", "I8"), ("f8", "F8_E4M3")):
            with pytest.raises(CheckpointError, match=f"tensor {name}: found type {kind}, expected a weight"):
                checkpoint.floats(name, 2, 3)
        with pytest.raises(CheckpointError, match="tensor a: found type F32, expected integers"):
            checkpoint.integers("a", 2, 3)
