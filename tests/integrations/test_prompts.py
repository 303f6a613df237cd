"""Prompts from files and through a target's own tokenizer."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidedraft.integrations.transformers.prompts import Text, read_prompts, to_ids
from support.text import tiny_tokenizer


def test_a_text_file_holds_a_prompt_a_line(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("one red fox\n\n  \ntwo\n")
    assert read_prompts(file) == ["one red fox", "two"]


def test_a_jsonl_file_holds_texts_or_token_ids(tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "a\\nb"}\n\n{"ids": [3, 1, 4]}\n')
    assert read_prompts(file) == ["a\nb", [3, 1, 4]]


@pytest.mark.parametrize("line", ["{", "[1]", '{"ids": ["1"]}', '{"ids": [true]}', '{"text": "x"}'])
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text('{"prompt": "fine"}\n' + line)
    with pytest.raises(ValueError, match=r"prompts\.jsonl, line 2: "):
        read_prompts(file)


def test_text_goes_through_the_tokenizer_and_ids_do_not(tmp_path: Path) -> None:
    folder = tiny_tokenizer(tmp_path, chat=True)
    ids, text = to_ids(["red fox", [96, 0]], folder)
    assert ids == [[4, 5], [96, 0]]
    assert text is not None
    assert text.decode([4, 5]) == "red fox"
    assert to_ids(["red fox"], folder, chat=True)[0] == [[3, 4, 5, 3]]


def test_ids_alone_need_no_tokenizer(tmp_path: Path) -> None:
    assert to_ids([[7]], tmp_path / "nowhere") == ([[7]], None)


def test_a_missing_tokenizer_or_template_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no usable tokenizer"):
        Text(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="no chat template"):
        Text(tiny_tokenizer(tmp_path, chat=False)).encode("red", chat=True)
