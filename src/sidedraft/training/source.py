"""Opening a checkpoint folder as the model that answers."""

from __future__ import annotations

import json
from pathlib import Path

from sidedraft.targets.tapped import TappedTarget
from sidedraft.targets.text import text_encoder
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
    target = TappedTarget.load(directory, recipe.taps_for(layers), threads=threads)
    return Source(directory, target, text_encoder(directory))
