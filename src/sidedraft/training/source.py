"""Opening a checkpoint folder as the model that answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from sidedraft.targets.tapped import TappedTarget
from sidedraft.training.collect import Source
from sidedraft.training.recipe import Recipe


def open_source(directory: Path, recipe: Recipe, *, threads: int | None = None) -> Source:
    """Load target and tokenizer. Raises FileNotFoundError or ValueError saying what the folder lacks."""
    config = directory / "config.json"
    if not config.is_file():
        raise FileNotFoundError(f"target {directory}: no config.json there; expected a checkpoint directory")
    layers = json.loads(config.read_text()).get("num_hidden_layers")
    if not isinstance(layers, int):
        raise ValueError(f"{config}: num_hidden_layers: expected an integer, found {layers!r}")
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(directory, local_files_only=True)
    except (OSError, ValueError, ImportError, KeyError) as error:
        raise ValueError(f"target {directory}: no usable tokenizer there: {error}") from error

    def encode(text: str) -> list[int]:
        return list(tokenizer(text, add_special_tokens=False)["input_ids"])

    target = TappedTarget.load(directory, recipe.taps_for(layers), threads=threads)
    return Source(directory, target, encode)
