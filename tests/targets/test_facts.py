"""What is read of a target's folder for the handshake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sidedraft.targets.facts import read_target_facts
from support.checkpoints import tiny_target


def test_facts_come_from_the_folders_files(tmp_path: Path) -> None:
    folder = tiny_target(tmp_path / "t", hidden=32, vocab=97)
    facts = read_target_facts(folder, [1, 3])
    assert (facts.taps, facts.hidden_size, facts.vocab_size) == ((1, 3), 32, 97)
    assert facts.model_digest is not None
    assert facts.vocab_digest is None


def test_a_tokenizer_gives_the_vocabulary_digest(tmp_path: Path) -> None:
    folder = tiny_target(tmp_path / "t")
    for name, piece in (("one", "a"), ("other", "b"), ("again", "a")):
        (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": {piece: 0}}}))
        (tmp_path / name).write_text(str(read_target_facts(folder, [1]).vocab_digest))
    one, other, again = ((tmp_path / name).read_text() for name in ("one", "other", "again"))
    assert one == again != other
    assert one != "None"


def test_another_architecture_has_another_digest(tmp_path: Path) -> None:
    one = read_target_facts(tiny_target(tmp_path / "a", layers=6), [1])
    other = read_target_facts(tiny_target(tmp_path / "b", layers=5), [1])
    assert one.model_digest != other.model_digest


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "not JSON"),
        ("[]", "expected a JSON object, found list"),
        ('{"hidden_size": "x"}', "hidden_size: expected an integer, found 'x'"),
    ],
)
def test_a_bad_config_names_file_and_field(tmp_path: Path, config: str, message: str) -> None:
    (tmp_path / "config.json").write_text(config)
    with pytest.raises(ValueError, match=message):
        read_target_facts(tmp_path, [1])


def test_a_missing_config_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no config\.json"):
        read_target_facts(tmp_path, [1])
