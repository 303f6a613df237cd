"""Prompt files are read strictly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sidedraft.training.prompts import PromptSet, read_prompts


def test_a_file_gives_its_set(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    file.write_text(json.dumps({"name": "n", "prefix": "p", "prompts": ["a", "b"], "suffix": "s"}))
    assert read_prompts(file) == PromptSet(name="n", prefix="p", prompts=("a", "b"), suffix="s")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "Input data was truncated"),
        ('{"name": "n", "prefix": "p"}', "missing required field `prompts`"),
        ('{"name": "n", "prefix": "p", "prompts": ["a"], "extra": 1}', "unknown field `extra`"),
        ('{"name": "n", "prefix": "p", "prompts": []}', "there must be a prompt"),
        ('{"name": "n", "prefix": "", "prompts": ["a"]}', "prefix and every prompt must have text"),
        ('{"name": "../n", "prefix": "p", "prompts": ["a"]}', r"`\$\.name`"),
    ],
)
def test_what_is_wrong_is_named_with_the_file(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "p.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_prompts(file)
    assert str(file) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"gone\.json"):
        read_prompts(tmp_path / "gone.json")
