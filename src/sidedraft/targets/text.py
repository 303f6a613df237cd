"""Text to token ids as a target's own tokenizer does it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer


def text_encoder(directory: Path) -> Callable[[str], list[int]]:
    """A function from text in which special tokens are spelled out to ids; none is added.

    Raises ValueError when the folder holds no tokenizer that transformers knows.
    """
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise ValueError(f"target {directory}: no usable tokenizer there: {error}") from error
    return lambda text: list(tokenizer(text, add_special_tokens=False)["input_ids"])
