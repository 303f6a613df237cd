"""Prompts as people write them, to and from token ids."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from sidedraft.targets.text import load_tokenizer

Prompt = str | list[int]
"""Text, or token ids that need no tokenizer."""


def read_prompts(path: Path) -> list[Prompt]:
    """A prompt a line; in a `.jsonl` file each line is `{"prompt": TEXT}` or `{"ids": [ID, ...]}`.

    Empty lines are skipped. Raises ValueError naming file and line, OSError when it cannot be read.
    """
    numbered = list(enumerate(path.read_text(encoding="utf-8").splitlines(), start=1))
    if path.suffix != ".jsonl":
        return [line for _, line in numbered if line.strip()]
    return [_parse(path, number, line) for number, line in numbered if line.strip()]


class Text:
    """A target's tokenizer."""

    def __init__(self, directory: Path) -> None:
        """Raises ValueError when the folder holds none that transformers knows."""
        self._tokenizer = load_tokenizer(directory)

    def encode(self, prompt: str, *, chat: bool = False) -> list[int]:
        """Token ids; with `chat`, the prompt becomes a user's message in the target's own chat template."""
        if not chat:
            return list(self._tokenizer(prompt)["input_ids"])
        if not self._tokenizer.chat_template:
            raise ValueError(
                "the target's tokenizer has no chat template; expected one, as a chat was asked for"
            )
        message = [{"role": "user", "content": prompt}]
        ids = self._tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=True)
        return list(ids["input_ids"])

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=True))


def to_ids(
    prompts: Sequence[Prompt], directory: Path, *, chat: bool = False
) -> tuple[list[list[int]], Text | None]:
    """Token ids of every prompt, and the tokenizer of the target's folder if one was needed."""
    text: Text | None = None
    found = []
    for prompt in prompts:
        if isinstance(prompt, str):
            text = text or Text(directory)
            found.append(text.encode(prompt, chat=chat))
        else:
            found.append(prompt)
    return found, text


def _parse(path: Path, number: int, line: str) -> Prompt:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise ValueError(f"{path}, line {number}: not JSON: {error}") from None
    match found:
        case {"prompt": str(text)}:
            return text
        case {"ids": [*ids]} if all(type(token) is int for token in ids):
            return ids
    raise ValueError(
        f'{path}, line {number}: {line:.60}; expected {{"prompt": TEXT}} or {{"ids": [ID, ...]}}'
    )
