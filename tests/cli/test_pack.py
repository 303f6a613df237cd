"""`sidedraft pack`: a bundle that serves without its target."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from sidedraft.cli.main import main
from sidedraft.drafts import load_draft
from support.checkpoints import tiny_draft, tiny_target


@pytest.mark.parametrize("family", ["dflash", "dspark"])
def test_a_bundle_computes_the_same_rows_without_the_target(family: str, tmp_path: Path) -> None:
    target = tiny_target(tmp_path / "target", tied=False)
    draft = tiny_draft(tmp_path / "draft", family, target=target)  # type: ignore[arg-type]
    bundle = tmp_path / "bundle"
    assert main(["pack", "--draft", str(draft), "--target", str(target), "-o", str(bundle)]) == 0
    first, second = load_draft(draft, target), load_draft(bundle)
    assert first.shape == second.shape
    aux = torch.randn(3, first.shape.row_width)
    positions = torch.arange(3)
    assert first.context_rows(aux, positions).equal(second.context_rows(aux, positions))


def test_faults_are_one_line_and_leave_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tiny_target(tmp_path / "target")
    draft = tiny_draft(tmp_path / "draft", "dspark", target=target)
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").touch()
    bundle = tmp_path / "bundle"
    for words in (
        ["--draft", str(draft), "--target", str(tmp_path / "none"), "-o", str(bundle)],
        ["--draft", str(tmp_path / "none"), "--target", str(target), "-o", str(bundle)],
        ["--draft", str(draft), "--target", str(target), "-o", str(full)],
    ):
        assert main(["pack", *words]) == 2
        error = capsys.readouterr().err
        lines = [line for line in error.splitlines() if not line.endswith(" %")]
        assert len(lines) == 1
        assert lines[0].startswith("sidedraft: error: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["draft", "full", "target"]
