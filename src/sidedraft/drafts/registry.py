"""Family by name, and loading: from a folder to a draft that can propose."""

from __future__ import annotations

from pathlib import Path

import torch

from sidedraft.drafts.base import Draft
from sidedraft.drafts.configs import DraftConfig, read_config
from sidedraft.drafts.dflash import DFlashDraft
from sidedraft.drafts.dspark import DSparkDraft
from sidedraft.drafts.weights import Progress, read_weights

FAMILIES = {"dflash": DFlashDraft, "dspark": DSparkDraft}


def load_draft(
    draft_dir: Path,
    target_dir: Path | None = None,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
    vllm_compat: bool = False,
) -> Draft:
    """Load a draft, taking embedding and head from the target's folder when it ships none.

    `target_dir` may be None for a draft that ships both, as `pack` writes them. `vllm_compat` as in
    `read_config`. Raises CheckpointError.
    """
    config: DraftConfig = read_config(draft_dir, vllm_compat=vllm_compat)
    weights = read_weights(config, draft_dir, target_dir, progress)
    return FAMILIES[config.family](weights, dtype, torch.device(device))
