"""A draft's context projection on its own: the draft's values, named so that it means this one only."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from sidedraft.drafts import CheckpointError, load_draft, load_projection, pack
from sidedraft.drafts.projection import ContextProjection
from support.checkpoints import tiny_draft, tiny_target

FAMILIES = [("dflash", "zlab"), ("dspark", "deepspec"), ("dspark", "speculators")]


@pytest.mark.parametrize(("family", "form"), FAMILIES)
def test_projecting_first_gives_the_drafts_rows(family: str, form: str, tmp_path: Path) -> None:
    target = tiny_target(tmp_path / "target")
    folder = tiny_draft(tmp_path / "draft", family, target=target, format=form)
    draft, projection = load_draft(folder, target), load_projection(folder)
    aux, positions = torch.randn(7, draft.shape.row_width), torch.arange(40, 47)
    hidden = projection(aux)
    assert hidden.shape == (7, projection.facts.width) == (7, draft.shape.hidden_size)
    assert draft.projected_rows(hidden, positions).equal(draft.context_rows(aux, positions))
    assert draft.projection is not None
    assert projection.facts == draft.projection.facts
    assert projection.nbytes == 4 * draft.shape.hidden_size * (draft.shape.row_width + 1)


def test_a_packed_draft_has_the_same_projection(tmp_path: Path) -> None:
    target = tiny_target(tmp_path / "target")
    folder = tiny_draft(tmp_path / "draft", "dflash", target=target)
    pack(folder, target, tmp_path / "bundle")
    assert load_projection(tmp_path / "bundle").facts == load_projection(folder).facts


def digest(folder: Path, dtype: torch.dtype = torch.float32) -> str:
    return load_projection(folder, dtype=dtype).facts.digest


def test_the_digest_is_of_the_weights_and_not_of_the_number_format_they_run_in(tmp_path: Path) -> None:
    target = tiny_target(tmp_path / "target")
    folder = tiny_draft(tmp_path / "draft", "dflash", target=target)
    before = digest(folder)
    assert digest(folder, torch.bfloat16) == before
    tensors = load_file(folder / "model.safetensors")
    for name in ("fc.weight", "hidden_norm.weight"):
        changed = {key: value.clone() for key, value in tensors.items()}
        changed[name].view(-1)[-1] += 1
        save_file(changed, folder / "model.safetensors")
        assert digest(folder) != before
    changed = {key: value.clone() for key, value in tensors.items()}
    changed["norm.weight"] += 1
    save_file(changed, folder / "model.safetensors")
    assert digest(folder) == before


def test_a_folder_without_the_weights_is_refused(tmp_path: Path) -> None:
    target = tiny_target(tmp_path / "target")
    folder = tiny_draft(tmp_path / "draft", "dflash", target=target)
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="weights"):
        load_projection(folder)


def test_it_computes_in_the_number_format_it_was_loaded_in(tmp_path: Path) -> None:
    target = tiny_target(tmp_path / "target")
    folder = tiny_draft(tmp_path / "draft", "dflash", target=target)
    projection = load_projection(folder, dtype=torch.bfloat16)
    assert isinstance(projection, ContextProjection)
    width = projection.fc.shape[1]
    assert projection(torch.randn(2, width).bfloat16()).dtype == torch.bfloat16
