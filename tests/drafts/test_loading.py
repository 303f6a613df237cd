"""From folders to a draft: what is taken from where, and what is refused."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from sidedraft.drafts import CheckpointError, Draft, load_draft
from sidedraft.drafts.block_draft import BlockDraft
from support.checkpoints import tiny_draft, tiny_target
from support.dense_context import DenseContext


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> Path:
    return tiny_target(tmp_path_factory.mktemp("target"), tied=False)


def tensors_of(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "model.safetensors")


def change(folder: Path, **config: Any) -> Path:
    values = json.loads((folder / "config.json").read_text()) | config
    (folder / "config.json").write_text(json.dumps(values))
    return folder


def replace(folder: Path, tensors: dict[str, Tensor | None]) -> Path:
    values: dict[str, Tensor | None] = tensors_of(folder) | tensors
    save_file(
        {name: value for name, value in values.items() if value is not None}, folder / "model.safetensors"
    )
    return folder


def parts(draft: Draft) -> BlockDraft:
    assert isinstance(draft, BlockDraft)
    return draft


def logits(draft: Draft, depth: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(5)
    aux = torch.randn(11, draft.shape.row_width, generator=generator).to(draft.dtype)
    rows = draft.context_rows(aux, torch.arange(11))
    context = DenseContext(
        draft.shape, [rows], [torch.arange(11)], torch.tensor([11]), draft.shape.query_rows(depth)
    )
    return draft.propose(torch.tensor([4]), torch.tensor([11]), depth, context).logits


class TestSharedRows:
    def test_embedding_and_head_are_the_targets(self, target: Path, tmp_path: Path) -> None:
        draft = parts(load_draft(tiny_draft(tmp_path, "dspark", target=target), target))
        assert draft.embedding.equal(tensors_of(target)["model.embed_tokens.weight"])
        assert draft.head.equal(tensors_of(target)["lm_head.weight"])

    def test_the_drafts_own_win(self, target: Path, tmp_path: Path) -> None:
        folder = tiny_draft(tmp_path, "dspark", target=target, own_embedding=True, own_head=True)
        draft = parts(load_draft(folder, target))
        assert draft.embedding.equal(tensors_of(folder)["embed_tokens.weight"])
        assert draft.head.equal(tensors_of(folder)["lm_head.weight"])
        assert logits(load_draft(folder)).equal(logits(draft)), "a target is not needed then"

    def test_a_tied_target_is_held_once(self, target: Path, tmp_path: Path) -> None:
        tied = tiny_target(tmp_path / "tied")
        draft = parts(load_draft(tiny_draft(tmp_path / "d", "dflash", target=tied), tied))
        untied = parts(load_draft(tiny_draft(tmp_path / "e", "dflash", target=target), target))
        assert draft.head is draft.embedding
        assert untied.weight_bytes() - draft.weight_bytes() == 97 * 32 * 4

    def test_a_draft_tied_to_its_own_embedding(self, target: Path, tmp_path: Path) -> None:
        folder = tiny_draft(
            tmp_path, "dspark", target=target, own_embedding=True, overrides={"tie_word_embeddings": True}
        )
        draft = parts(load_draft(folder))
        assert draft.head is draft.embedding

    def test_a_reduced_head_takes_the_targets_rows(self, target: Path, tmp_path: Path) -> None:
        folder = tiny_draft(tmp_path, "dspark", target=target, draft_vocab=20)
        draft = parts(load_draft(folder, target))
        ids = torch.arange(20) + tensors_of(folder)["d2t"]
        assert draft.head.equal(tensors_of(target)["lm_head.weight"][ids])
        assert draft.vocabulary.to_target(torch.tensor([0, 19])).tolist() == ids[[0, 19]].tolist()
        assert (draft.shape.vocab_size, draft.shape.draft_vocab_size) == (97, 20)

    def test_a_head_padded_beyond_the_target_is_trimmed(self, target: Path, tmp_path: Path) -> None:
        """128 output rows for 97 tokens: the surplus could never be a token."""
        folder = tiny_draft(tmp_path, "dspark", target=target)
        change(folder, vocab_size=128, draft_vocab_size=128)
        generator = torch.Generator().manual_seed(2)
        replace(
            folder,
            {
                "embed_tokens.weight": torch.randn(128, 32, generator=generator),
                "lm_head.weight": torch.randn(128, 32, generator=generator),
                "markov_head.markov_w1.weight": torch.randn(128, 8, generator=generator),
                "markov_head.markov_w2.weight": torch.randn(128, 8, generator=generator),
            },
        )
        draft = load_draft(folder, target)
        assert (draft.shape.vocab_size, draft.shape.draft_vocab_size) == (97, 97)
        assert logits(draft).shape == (1, 3, 97)

    def test_nothing_to_take_them_from(self, target: Path, tmp_path: Path) -> None:
        with pytest.raises(
            CheckpointError, match=r"embed_tokens\.weight: found nothing, expected the tensor, or"
        ):
            load_draft(tiny_draft(tmp_path / "a", "dflash", target=target))
        with pytest.raises(CheckpointError, match=r"lm_head\.weight: found nothing, expected the tensor, or"):
            load_draft(tiny_draft(tmp_path / "b", "dflash", target=target, own_embedding=True))


class TestTargetsThatDoNotFit:
    def test_another_width(self, target: Path, tmp_path: Path) -> None:
        folder = tiny_draft(tmp_path / "d", "dflash", target=target)
        other = tiny_target(tmp_path / "t", hidden=64)
        with pytest.raises(CheckpointError, match="hidden_size: found 64, expected the width") as raised:
            load_draft(folder, other)
        assert raised.value.file == other / "config.json"

    def test_fewer_layers_than_taps(self, target: Path, tmp_path: Path) -> None:
        other = tiny_target(tmp_path / "t", layers=4)
        with pytest.raises(CheckpointError, match="num_hidden_layers: found 4, expected at least 5"):
            load_draft(tiny_draft(tmp_path / "d", "dflash", target=target), other)

    @pytest.mark.parametrize("vocab", [90, 120])
    def test_another_vocabulary(self, vocab: int, target: Path, tmp_path: Path) -> None:
        other = tiny_target(tmp_path / "t", vocab=vocab)
        with pytest.raises(CheckpointError, match=f"vocab_size: found 97, expected .*{vocab}"):
            load_draft(tiny_draft(tmp_path / "d", "dflash", target=target), other)


class TestTensors:
    def test_prefixed_and_aliased_names(self, target: Path, tmp_path: Path) -> None:
        folder = tiny_draft(tmp_path, "dflash", target=target, layers=1)
        plain = load_draft(folder, target)
        renamed = {}
        for name, value in tensors_of(folder).items():
            new = name.replace("layers.0.", "midlayer.").replace("fc.", "encoder.fc.")
            renamed["model." + new.replace("hidden_norm.", "encoder.output_norm_enc.")] = value
        save_file(renamed, folder / "model.safetensors")
        found = load_draft(folder, target)
        assert logits(found).equal(logits(plain))
        assert found.identity == plain.identity

    def test_two_names_for_one_tensor(self, target: Path, tmp_path: Path) -> None:
        folder = tiny_draft(tmp_path, "dflash", target=target)
        replace(folder, {"model.fc.weight": tensors_of(folder)["fc.weight"].clone()})
        with pytest.raises(CheckpointError, match=r"fc\.weight: found fc\.weight and model\.fc\.weight"):
            load_draft(folder, target)

    @pytest.mark.parametrize(
        "name",
        [
            "fc.weight",
            "layers.1.self_attn.k_norm.weight",
            "markov_head.markov_w2.weight",
            "confidence_head.proj.bias",
        ],
    )
    def test_missing(self, name: str, target: Path, tmp_path: Path) -> None:
        folder = replace(tiny_draft(tmp_path, "dspark", target=target), {name: None})
        with pytest.raises(CheckpointError, match="found nothing, expected a weight") as raised:
            load_draft(folder, target)
        assert raised.value.what == f"tensor {name}"

    @pytest.mark.parametrize(
        "name", ["fc.weight", "layers.0.mlp.up_proj.weight", "markov_head.markov_w1.weight"]
    )
    def test_wrong_shape(self, name: str, target: Path, tmp_path: Path) -> None:
        folder = replace(tiny_draft(tmp_path, "dspark", target=target), {name: torch.ones(3, 5)})
        with pytest.raises(CheckpointError, match=r"found shape \[3, 5\], expected shape \[") as raised:
            load_draft(folder, target)
        assert raised.value.what == f"tensor {name}"
        assert raised.value.file == folder / "model.safetensors"

    @pytest.mark.parametrize(
        "name",
        ["layers.0.self_attn.attention_sink_bias", "layers.2.input_layernorm.weight", "fc.weight_scale"],
    )
    def test_left_over(self, name: str, target: Path, tmp_path: Path) -> None:
        folder = replace(tiny_draft(tmp_path, "dflash", target=target), {name: torch.ones(4)})
        with pytest.raises(CheckpointError, match="has no use for") as raised:
            load_draft(folder, target)
        assert raised.value.what == f"tensor {name}"

    def test_what_only_training_uses_is_ignored(self, target: Path, tmp_path: Path) -> None:
        folder = tiny_draft(tmp_path, "dflash", target=target)
        plain = load_draft(folder, target)
        replace(folder, {"t2d": torch.ones(97, dtype=torch.bool), "verifier_norm.weight": torch.ones(32)})
        assert load_draft(folder, target).identity == plain.identity

    @pytest.mark.parametrize(
        ("d2t", "message"),
        [
            (torch.arange(20) * 4 + 30, "lead to id 125, expected offsets that lead to ids below 97"),
            (torch.full((20,), -1), "lead to id -1"),
            (-torch.arange(20), "two draft ids with one target id"),
            (torch.zeros(20), "found type F32, expected integers"),
            (torch.zeros(19, dtype=torch.int64), r"found shape \[19\], expected shape \[20\]"),
            (None, r"found nothing, expected \[20\]: the target's vocabulary has 97"),
        ],
    )
    def test_vocabulary_maps(self, d2t: Tensor | None, message: str, target: Path, tmp_path: Path) -> None:
        folder = replace(tiny_draft(tmp_path, "dflash", target=target, draft_vocab=20), {"d2t": d2t})
        with pytest.raises(CheckpointError, match=f"tensor d2t: .*{message}"):
            load_draft(folder, target)


class Bomb:
    """Writes a file if anybody unpickles it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.path, "boom")


class TestMaskRow:
    @pytest.mark.parametrize("form", ["tensor", "dict"])
    def test_it_replaces_the_embedding_of_the_mask_token(
        self, form: str, target: Path, tmp_path: Path
    ) -> None:
        tied = tiny_target(tmp_path / "t")
        folder = tiny_draft(tmp_path / "d", "dflash", target=tied)
        before = load_draft(folder, tied)
        row = torch.randn(1, 32)
        torch.save(
            row if form == "tensor" else {"mask_token_id": 96, "embedding": row}, folder / "mask_embedding.pt"
        )
        draft = parts(load_draft(folder, tied))
        assert draft.embedding[96].equal(row[0])
        assert draft.head.equal(parts(before).head), "a tied head keeps its own row"
        assert draft.identity != before.identity
        assert not torch.allclose(logits(draft), logits(before))

    def test_it_runs_no_code(self, target: Path, tmp_path: Path) -> None:
        folder = tiny_draft(tmp_path / "d", "dflash", target=target)
        (folder / "mask_embedding.pt").write_bytes(pickle.dumps(Bomb(tmp_path / "proof"), protocol=2))
        with pytest.raises(CheckpointError, match=r"mask_embedding\.pt"):
            load_draft(folder, target)
        torch.save({"embedding": Bomb(tmp_path / "proof")}, folder / "mask_embedding.pt")
        with pytest.raises(CheckpointError, match=r"mask_embedding\.pt"):
            load_draft(folder, target)
        assert not (tmp_path / "proof").exists()

    @pytest.mark.parametrize(
        "value", [torch.ones(31), {"embedding": torch.ones(32), "mask_token_id": 5}, {"other": 1}, [1.0] * 32]
    )
    def test_what_does_not_fit_is_refused(self, value: object, target: Path, tmp_path: Path) -> None:
        folder = tiny_draft(tmp_path, "dflash", target=target)
        torch.save(value, folder / "mask_embedding.pt")
        with pytest.raises(CheckpointError) as raised:
            load_draft(folder, target)
        assert raised.value.file == folder / "mask_embedding.pt"

    def test_it_is_dflash_only(self, target: Path, tmp_path: Path) -> None:
        folder = tiny_draft(tmp_path, "dspark", target=target)
        (folder / "mask_embedding.pt").write_bytes(b"junk")
        load_draft(folder, target)


def test_identity_is_of_config_and_weights(target: Path, tmp_path: Path) -> None:
    one = tiny_draft(tmp_path / "a", "dspark", target=target)
    same = tiny_draft(tmp_path / "b", "dspark", target=target)
    base = load_draft(one, target).identity
    assert load_draft(same, target).identity == base
    assert len(bytes.fromhex(base)) == 16
    nudged = tensors_of(same)["fc.weight"].clone()
    nudged[0, 0] += 1e-6
    assert load_draft(replace(same, {"fc.weight": nudged}), target).identity != base
    assert load_draft(change(one, rms_norm_eps=1e-5), target).identity != base


def test_a_loaded_draft_does_not_depend_on_its_files(target: Path, tmp_path: Path) -> None:
    folder = tiny_draft(tmp_path, "dflash", target=target)
    draft = load_draft(folder, target)
    before = logits(draft)
    with (folder / "model.safetensors").open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (folder / "model.safetensors").stat().st_size)
    assert logits(draft).equal(before)


def test_loading_reports_progress(target: Path, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    load_draft(
        tiny_draft(tmp_path, "dflash", target=target),
        target,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert [done for done, _ in seen] == list(range(1, len(seen) + 1))
    assert {total for _, total in seen} == {len(seen)}


@pytest.mark.parametrize("family", ["dflash", "dspark"])
def test_half_precision_stays_close(family: str, target: Path, tmp_path: Path) -> None:
    folder = tiny_draft(tmp_path, family, target=target)
    exact = logits(load_draft(folder, target))
    draft = load_draft(folder, target, dtype=torch.bfloat16)
    assert draft.dtype is torch.bfloat16
    found = logits(draft)
    assert found.dtype is torch.bfloat16
    error = (found.float() - exact).norm() / exact.norm()
    assert error < 0.05
