"""Text to token ids as a target's own tokenizer does it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer


def load_tokenizer(directory: Path) -> Any:
    """The tokenizer of a target's folder.

    Raises ValueError when the folder holds none that transformers knows.
    """
    try:
        return AutoTokenizer.from_pretrained(directory, local_files_only=True)
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise ValueError(f"target {directory}: no usable tokenizer there: {error}") from error


def text_encoder(directory: Path) -> Callable[[str], list[int]]:
    """A function from text in which special tokens are spelled out to ids; none is added.

    Raises ValueError as `load_tokenizer` does.
    """
    tokenizer = load_tokenizer(directory)
    return lambda text: list(tokenizer(text, add_special_tokens=False)["input_ids"])
