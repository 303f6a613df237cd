"""Embedding and head of a target, wherever its checkpoint keeps them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from sidedraft.drafts import CheckpointError
from sidedraft.drafts.target_tensors import read_target_tensors
from support.checkpoints import tiny_target, write_checkpoint

EMBED, HEAD = "model.embed_tokens.weight", "lm_head.weight"


def rename(folder: Path, names: dict[str, str | None]) -> Path:
    tensors = load_file(folder / "model.safetensors")
    for old, new in names.items():
        value = tensors.pop(old)
        if new is not None:
            tensors[new] = value
    save_file(tensors, folder / "model.safetensors")
    return folder


def edit(folder: Path, **changes: object) -> Path:
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("shards", [1, 4])
@pytest.mark.parametrize("prefix", ["", "language_model."])
@pytest.mark.parametrize("tied", [True, False])
def test_every_usual_place(shards: int, prefix: str, tied: bool, tmp_path: Path) -> None:
    plain = load_file(tiny_target(tmp_path / "plain", tied=tied) / "model.safetensors")
    target = read_target_tensors(tiny_target(tmp_path / "t", tied=tied, prefix=prefix, shards=shards))
    assert target.embedding.equal(plain[EMBED])
    assert target.head.equal(plain[EMBED if tied else HEAD])
    assert (target.head is target.embedding) is tied


@pytest.mark.parametrize(
    ("embed", "head"),
    [
        ("model.language_model.embed_tokens.weight", "lm_head.weight"),
        ("language_model.model.embed_tokens.weight", "language_model.lm_head.weight"),
        ("embed_tokens.weight", "model.lm_head.weight"),
    ],
)
def test_language_models_inside_others(embed: str, head: str, tmp_path: Path) -> None:
    folder = tiny_target(tmp_path, tied=False)
    plain = load_file(folder / "model.safetensors")
    target = read_target_tensors(rename(folder, {EMBED: embed, HEAD: head}))
    assert target.embedding.equal(plain[EMBED])
    assert target.head.equal(plain[HEAD])


def test_sizes_come_from_the_text_config(tmp_path: Path) -> None:
    folder = tiny_target(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({"hidden_size": 1, "text_config": config}))
    facts = read_target_tensors(folder).facts
    assert (facts.hidden_size, facts.vocab_size, facts.layers, facts.tied) == (32, 97, 6, True)


def test_a_shipped_head_wins_over_a_tied_flag(tmp_path: Path) -> None:
    folder = edit(tiny_target(tmp_path, tied=False), tie_word_embeddings=True)
    assert read_target_tensors(folder).head.equal(load_file(folder / "model.safetensors")[HEAD])


def test_rows_that_pad_the_vocabulary_are_cut_off(tmp_path: Path) -> None:
    target = read_target_tensors(edit(tiny_target(tmp_path, tied=False), vocab_size=90))
    assert len(target.embedding) == len(target.head) == 90


def test_only_the_shards_with_the_two_tensors_are_needed(tmp_path: Path) -> None:
    folder = tiny_target(tmp_path, tied=False, shards=5)
    index = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    for file in set(index.values()) - {index[EMBED], index[HEAD]}:
        (folder / file).unlink()
    assert read_target_tensors(folder).head.shape == (97, 32)


class TestRefusals:
    def test_missing_embedding(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match=r"tensor embed_tokens\.weight: found nothing"):
            read_target_tensors(rename(tiny_target(tmp_path), {EMBED: None}))

    def test_missing_head_of_an_untied_target(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match=r"tensor lm_head\.weight: found nothing"):
            read_target_tensors(rename(tiny_target(tmp_path, tied=False), {HEAD: None}))

    def test_another_width_than_the_config_says(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match=r"found shape \[97, 32\], expected shape \[any, 64\]"):
            read_target_tensors(edit(tiny_target(tmp_path), hidden_size=64))

    def test_fewer_rows_than_the_vocabulary(self, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match=r"found 97 rows, expected vocab_size \(128\)"):
            read_target_tensors(edit(tiny_target(tmp_path), vocab_size=128))

    @pytest.mark.parametrize("suffix", ["weight_scale", "qweight", "weight_packed", "weight_scale_inv"])
    @pytest.mark.parametrize("name", [EMBED, HEAD])
    def test_quantised_by_its_companions(self, name: str, suffix: str, tmp_path: Path) -> None:
        folder = tiny_target(tmp_path, tied=False)
        tensors = load_file(folder / "model.safetensors")
        companion = name.removesuffix("weight") + suffix
        tensors[companion] = torch.ones(97)
        save_file(tensors, folder / "model.safetensors")
        with pytest.raises(CheckpointError, match="a quantised form") as raised:
            read_target_tensors(folder)
        assert raised.value.what == f"tensor {name}"
        assert companion in str(raised.value)

    @pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.float8_e4m3fn])
    def test_quantised_by_its_type(self, dtype: torch.dtype, tmp_path: Path) -> None:
        folder = tiny_target(tmp_path)
        tensors = load_file(folder / "model.safetensors")
        tensors[EMBED] = tensors[EMBED].to(dtype)
        save_file(tensors, folder / "model.safetensors")
        with pytest.raises(CheckpointError, match="expected a weight that is not quantised"):
            read_target_tensors(folder)

    def test_no_config(self, tmp_path: Path) -> None:
        write_checkpoint(tmp_path, {}, {EMBED: torch.ones(2, 2)})
        (tmp_path / "config.json").unlink()
        with pytest.raises(CheckpointError, match=r"config\.json: file: found nothing"):
            read_target_tensors(tmp_path)
