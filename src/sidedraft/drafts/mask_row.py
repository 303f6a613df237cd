"""DFlash's optional file with the mask token's embedding, trained apart from the vocabulary's rows."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from sidedraft.drafts.configs import DraftConfig
from sidedraft.drafts.errors import CheckpointError

MASK_FILE = "mask_embedding.pt"
MAX_MASK_BYTES = 16 << 20


def read_mask_row(config: DraftConfig, draft_dir: Path) -> Tensor | None:
    """The row, [hidden_size], or None: only DFlash has such a file, and few of its checkpoints do.

    The one file that is not safetensors. It is opened with torch's restricted reader, which builds tensors
    and plain containers and runs no code.
    """
    file = draft_dir / MASK_FILE
    if config.family != "dflash" or not file.exists():
        return None
    if file.stat().st_size > MAX_MASK_BYTES:
        raise CheckpointError(
            file, "file", found=f"{file.stat().st_size} bytes", expected="one embedding row"
        )
    try:
        value = torch.load(file, map_location="cpu", weights_only=True)
    except (
        Exception
    ) as error:  # of any kind: the reader's parts each raise their own on bytes they cannot use
        raise CheckpointError(file, "file", found=str(error), expected="a tensor saved by torch") from error
    if isinstance(value, dict):
        if value.get("mask_token_id", config.mask_token_id) != config.mask_token_id:
            raise CheckpointError(
                file,
                "mask_token_id",
                found=value["mask_token_id"],
                expected=f"the config's, {config.mask_token_id}",
            )
        value = value.get("embedding")
    if not isinstance(value, Tensor) or value.numel() != config.backbone.hidden_size:
        found = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise CheckpointError(
            file, "embedding", found=found, expected=f"{config.backbone.hidden_size} values"
        )
    return value.detach().reshape(-1)
