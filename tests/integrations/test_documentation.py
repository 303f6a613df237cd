"""The guide quotes the code as it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import sidedraft

ROOT = Path(__file__).resolve().parents[2]
SOURCES = Path(sidedraft.__file__).parent / "integrations" / "transformers"
GUIDE = ROOT / "docs" / "integrations.md"
QUOTES = re.findall(r"```python (\S+)\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def bare(text: str) -> str:
    return "\n".join(line.strip() for line in text.strip().splitlines())


@pytest.mark.parametrize(("file", "quote"), QUOTES)
def test_a_quote_stands_in_the_file_it_names(file: str, quote: str) -> None:
    assert bare(quote) in bare((SOURCES / file).read_text())


def test_the_guide_quotes_every_part_of_an_integration() -> None:
    assert {file for file, _ in QUOTES} == {"connect.py", "request.py", "loop.py", "sampling.py"}


def test_every_file_is_in_the_guides_table() -> None:
    text = GUIDE.read_text()
    for file in SOURCES.glob("*.py"):
        assert f"`{file.name}`" in text or file.name == "__init__.py"
