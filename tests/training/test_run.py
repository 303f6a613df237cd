"""From prompts to a folder that serves, by the command itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sidedraft.cli import main as cli
from sidedraft.drafts.registry import load_draft
from sidedraft.training.collect import Source
from sidedraft.training.prompts import PromptSet
from sidedraft.training.recipe import Recipe
from sidedraft.training.run import run
from sidedraft.training.trainer import Trainer
from support.text import tiny_tokenizer
from support.training import PROMPTS

HELD_OUT = PromptSet(name="unseen", prefix="abcde:", prompts=tuple("klm"), suffix="!")


class Watcher:
    """Keeps what it is told; interrupts at a given training step."""

    def __init__(self, interrupt_at: int | None = None) -> None:
        self.tasks: list[str] = []
        self._interrupt_at = interrupt_at

    def progress(self, task: str, done: int, total: int, note: str = "") -> None:
        self.tasks.append(task)
        if task == "training" and done == self._interrupt_at:
            raise KeyboardInterrupt


def test_an_interrupted_run_continues_and_gives_the_same_draft(
    source: Source, recipe: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def go(work: str, watcher: Watcher) -> bytes:
        out = tmp_path / work / "draft"
        run(source, [PROMPTS], [HELD_OUT], recipe, out=out, work=tmp_path / work, observer=watcher)
        return (out / "model.safetensors").read_bytes()

    straight = go("straight", Watcher())
    with pytest.raises(KeyboardInterrupt):
        go("broken", Watcher(interrupt_at=9))
    advanced: list[int] = []
    advance = Trainer.advance
    monkeypatch.setattr(Trainer, "advance", lambda self: advanced.append(self.step) or advance(self))
    assert go("broken", Watcher()) == straight
    assert advanced == list(range(9, recipe.steps))


def test_a_run_reports_what_it_measured(source: Source, recipe: Recipe, tmp_path: Path) -> None:
    watcher = Watcher()
    outcome = run(
        source, [PROMPTS], [HELD_OUT], recipe, out=tmp_path / "draft", work=tmp_path, observer=watcher
    )
    measured = outcome.report["measured"]
    assert list(measured) == ["seen", "unseen"]
    assert measured["seen"]["prompts"] == 9
    assert measured["unseen"]["prompts"] == 3
    assert (
        measured["seen"]["draft"]["acceptance_length"] > measured["unseen"]["draft"]["acceptance_length"] > 0
    )
    assert len(measured["seen"]["draft"]["by_position"]) == recipe.depth
    assert outcome.report["bytes"] == (tmp_path / "draft" / "model.safetensors").stat().st_size
    json.dumps(outcome.report)
    assert {"answers to seen", "training", "measuring on unseen"} <= set(watcher.tasks)


@pytest.mark.slow
def test_the_command_trains_a_draft_that_loads(
    target_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_tokenizer(target_folder, chat=False)
    prompts = tmp_path / "p.json"
    prompts.write_text(json.dumps({"name": "p", "prefix": "user ", "prompts": ["red fox", "dog", "fox"]}))
    words = ["train", "--target", target_folder, "--out", tmp_path / "draft", "--prompts", prompts]
    words += ["--taps", "1,3,5", "--steps", "3", "--sequences", "2", "--anchors", "2", "--draft-vocab", "50"]
    words += ["--max-new-tokens", "8", "--report", tmp_path / "r.json", "--threads", "1"]
    assert cli.main([str(word) for word in words]) == 0
    draft = load_draft(tmp_path / "draft", target_folder)
    assert draft.shape.draft_vocab_size == 50
    assert json.loads((tmp_path / "r.json").read_text())["recipe"]["steps"] == 3
    assert "acceptance length" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--prompts", "gone.json"], "gone.json"),
        (["--prompts", "P", "P"], "prompt sets must have names of their own, got p, p"),
        (["--prompts", "P", "--taps", "1,x"], "--taps 1,x: expected aux ids"),
        (["--prompts", "P", "--depth", "0"], "depth: '?0'? is not allowed"),
        (["--prompts", "P", "--threads", "0"], "--threads 0: expected at least 1"),
        (["--prompts", "P", "--target", "nowhere"], "no config.json there"),
    ],
)
def test_wrong_input_is_one_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "p.json"
    prompts.write_text(json.dumps({"name": "p", "prefix": "user ", "prompts": ["dog"]}))
    given = ["train", "--target", str(tmp_path), "--out", str(tmp_path / "d")]
    given += [str(prompts) if word == "P" else word for word in words]
    assert cli.main(given) == 2
    [line] = capsys.readouterr().err.strip().splitlines()
    assert line.startswith("sidedraft: error: ")
    assert message.replace("'?", "").replace("?", "") in line.replace("'", "")
