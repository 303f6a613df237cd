"""Prompts for a tiny target, and an encoder that needs no tokenizer."""

from __future__ import annotations

from sidedraft.training.prompts import PromptSet

VOCAB = 97
PROMPTS = PromptSet(name="seen", prefix="abcde:", prompts=tuple("xyzuvwrst"), suffix="!")


def encode(text: str) -> list[int]:
    """A token a character."""
    return [3 + ord(character) % (VOCAB - 3) for character in text]
