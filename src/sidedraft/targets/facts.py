"""What a verifier states about its target in the handshake, read from a checkpoint folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sidedraft.wire.identity import model_digest, tokenizer_tokens, vocab_digest
from sidedraft.wire.messages import TargetFacts


def read_target_facts(directory: Path | str, taps: Sequence[int]) -> TargetFacts:
    """Facts of the target in `directory`, tapped at aux ids `taps`.

    A digest that the folder's files do not settle stays None: the identity is then `partial`. Raises
    FileNotFoundError when there is no config.json, ValueError when it does not state the sizes.
    """
    path = Path(directory)
    config = _read_json(path / "config.json")
    if config is None:
        raise FileNotFoundError(f"target {path}: no config.json there; expected a checkpoint directory")
    inner = config.get("text_config", config)
    sizes = {}
    for name in ("hidden_size", "vocab_size"):
        sizes[name] = inner.get(name)
        if not isinstance(sizes[name], int):
            raise ValueError(f"{path / 'config.json'}: {name}: expected an integer, found {sizes[name]!r}")
    tokenizer = _read_json(path / "tokenizer.json")
    tokens = None if tokenizer is None else tokenizer_tokens(tokenizer)
    return TargetFacts(
        taps=tuple(taps),
        hidden_size=sizes["hidden_size"],
        vocab_size=sizes["vocab_size"],
        model_digest=model_digest(config),
        vocab_digest=None if tokens is None else vocab_digest(tokens),
    )


def _read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object, or None when there is no such file."""
    if not path.is_file():
        return None
    try:
        value = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, found {type(value).__name__}")
    return value
