"""What `sidedraft generate` says of wrong input: one line that names it, and status 2."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from sidedraft.cli.main import main
from support.checkpoints import tiny_draft, tiny_target
from support.text import tiny_tokenizer


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    target = tiny_tokenizer(tiny_target(folder / "target"), chat=False)
    return target, tiny_draft(folder / "draft", "dspark", target=target)


def test_text_is_printed_as_text(models: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    words = ["generate", "--target", str(models[0]), "--prompt", "red fox", "--prompt", "dog"]
    assert main([*words, "--max-new-tokens", "4", "--ignore-eos"]) == 0
    shown = capsys.readouterr()
    assert [line[:4] for line in shown.out.splitlines()] == ["[0] ", "[1] "]
    assert "8 tokens in" in shown.err
    assert main([*words, "--max-new-tokens", "4", "--ignore-eos", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert all(isinstance(one["text"], str) for one in found["generations"])


def test_without_a_prompt_flag_the_lines_of_standard_input_are_prompts(
    models: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("red fox\n\ndog\n"))
    assert main(["generate", "--target", str(models[0]), "--max-new-tokens", "2", "--ignore-eos"]) == 0
    assert [line[:4] for line in capsys.readouterr().out.splitlines()] == ["[0] ", "[1] "]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "no prompt"),
        (["--prompt", "red", "--connect", "ipc:///tmp/x"], "--connect and --draft go together"),
        (["--prompt", "red", "--draft", "DRAFT"], "--connect and --draft go together"),
        (["--prompt", "red", "--connect", "carrier:pigeon", "--draft", "DRAFT"], "carrier:pigeon"),
        (["--prompt", "red", "--connect", "ipc:///tmp/x", "--draft", "/nowhere"], "/nowhere/config.json"),
        (["--prompt", "red", "--target", "/nowhere"], "/nowhere"),
        (["--prompt", "red", "--depth", "99"], "depth: 99"),
        (["--prompt", "red", "--depth", "many"], "--depth"),
        (["--prompt", "red", "--max-new-tokens", "0"], "max_new_tokens: 0"),
        (["--prompt", "red", "--max-new-tokens", "4096"], "prompt 0: 1 tokens and 4096 new ones"),
        (["--prompt", "red", "--deadline", "-1"], "deadline: -1"),
        (["--prompt", "red", "--threads", "0"], "threads: 0"),
        (["--prompt", "red", "--dtype", "int3"], "dtype: 'int3'"),
        (["--prompt", "red", "--chat"], "no chat template"),
        (["--prompts", "/nowhere.txt"], "/nowhere.txt"),
        (["--prompts", "/dev/null"], "no prompt"),
        (["--prompts", "IDS"], "prompt 1: token ids 97..97"),
    ],
)
def test_wrong_input_is_named_in_one_line(
    models: tuple[Path, Path],
    words: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    ids = tmp_path / "ids.jsonl"
    ids.write_text('{"ids": [1]}\n{"ids": [97]}\n')
    places = {"DRAFT": str(models[1]), "IDS": str(ids)}
    target = [] if "--target" in words else ["--target", str(models[0])]
    assert main(["generate", *target, *(places.get(word, word) for word in words)]) == 2
    [line] = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert line.startswith("sidedraft: error: ")
    assert said in line


def test_a_missing_extra_is_named(
    models: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    for name in ("sidedraft.integrations.transformers.loop", "sidedraft.targets.tapped"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert main(["generate", "--target", str(models[0]), "--prompt", "red"]) == 2
    assert "pip install 'sidedraft[transformers]'" in capsys.readouterr().err
