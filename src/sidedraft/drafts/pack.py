"""A folder that serves without the target: the draft with its embedding and head beside it.

The form is the full one of its family's own format, so that an engine's own loader takes the folder too.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from sidedraft.drafts.checkpoint import SINGLE_FILE
from sidedraft.drafts.configs import DraftConfig, deepspec, read_config, zlab
from sidedraft.drafts.configs.reader import CONFIG_FILE
from sidedraft.drafts.names import D2T, EMBEDDING, HEAD
from sidedraft.drafts.weights import DraftWeights, Progress, read_weights


def pack(
    draft_dir: Path, target_dir: Path | None, out: Path, *, progress: Progress | None = None
) -> DraftConfig:
    """Write `out`, which must not exist or be an empty folder; it appears whole or not at all.

    Tensors keep their stored type. What only this package applies is folded in (`input_embedding_scale`, a
    separate mask row), as other loaders ignore it. Returns the config as written.

    Raises CheckpointError for the inputs and FileExistsError for `out`.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise FileExistsError(f"{out}: found something, expected no such path or an empty folder")
    weights = read_weights(read_config(draft_dir), draft_dir, target_dir, progress)
    out.parent.mkdir(parents=True, exist_ok=True)
    staging = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        _write(weights, staging)
        written = read_config(staging)
        staging.chmod(0o755)
        os.replace(staging, out)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    return written


def _write(weights: DraftWeights, folder: Path) -> None:
    tensors = _tensors(weights)
    config = _config(weights.config) | {"dtype": str(tensors["fc.weight"].dtype).removeprefix("torch.")}
    (folder / CONFIG_FILE).write_text(json.dumps(config, indent=2) + "\n")
    save_file(tensors, folder / SINGLE_FILE, metadata={"format": "pt"})


def _tensors(weights: DraftWeights) -> dict[str, Tensor]:
    scale = weights.config.input_embedding_scale
    tensors = {name: tensor.contiguous() for name, tensor in weights.body.items()}
    tensors[EMBEDDING] = (weights.embedding * scale if scale != 1.0 else weights.embedding).clone()
    tensors[HEAD] = weights.head.clone()
    if weights.target_ids is not None:
        tensors[D2T] = weights.target_ids - torch.arange(len(weights.target_ids))
    return tensors


def _config(config: DraftConfig) -> dict[str, Any]:
    folded = replace(config, input_embedding_scale=1.0, tie_word_embeddings=False)
    if config.family == "dspark":
        return deepspec.write(folded)
    return zlab.write(folded) | {"has_own_lm_head": True}
