"""A random target and a random draft that agree often, as trained ones do.

The target's attention is made weak, so that its next token mostly depends on the last one. That map goes into
the draft's Markov head, as a bias that competes with the draft's own logits: part of the proposals is right,
part is wrong, and all depend on the aux states.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from sidedraft.targets.tapped import TappedTarget
from support.checkpoints import tiny_draft, tiny_target, write_checkpoint

TAPS = (1, 3, 6)
MAX_DEPTH = 4


def agreeing_pair(
    folder: Path, *, max_position: int = 4096, bias: float = 8.0, hidden: int = 32
) -> tuple[Path, Path]:
    """Write `folder/target` and `folder/draft`; returns both paths. `bias` 0 leaves agreement to chance.

    Both have four heads, of a fourth of `hidden`, and two of keys and values.
    """
    target = tiny_target(folder / "target", hidden=hidden)
    weights = load_file(target / "model.safetensors")
    # Attention's part grows with the square of the width here, and logits with its root: keep the balance.
    weak, bias = 0.01 * (32 / hidden) ** 2, bias * (hidden / 32) ** 0.5
    weakened = {name: w * weak if "o_proj" in name else w for name, w in weights.items()}
    write_checkpoint(target, _config(target), weakened)

    model = TappedTarget.load(target, ())
    vocab = model.vocab_size
    every = torch.arange(vocab)[:, None]
    step = model.forward(
        model.new_cache(vocab, 1),
        every,
        torch.zeros(vocab, dtype=torch.int64),
        torch.ones(vocab, dtype=torch.int64),
    )
    following = step.logits[:, 0].argmax(-1)

    overrides: dict[str, Any] = {"max_position_embeddings": max_position}
    draft = tiny_draft(
        folder / "draft",
        "dspark",
        target=target,
        taps=TAPS,
        max_depth=MAX_DEPTH,
        markov_rank=vocab,
        head_dim=hidden // 4,
        overrides=overrides,
    )
    weights = load_file(draft / "model.safetensors")
    weights["markov_head.markov_w1.weight"] = torch.eye(vocab)
    head = torch.zeros(vocab, vocab)
    head[following, torch.arange(vocab)] = bias
    weights["markov_head.markov_w2.weight"] = head
    write_checkpoint(draft, _config(draft), weights)
    return target, draft


def _config(folder: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    return config
