"""Which format a draft folder is in."""

from __future__ import annotations

from pathlib import Path

from sidedraft.drafts.configs import deepspec, speculators, zlab
from sidedraft.drafts.configs.draft_config import DraftConfig
from sidedraft.drafts.configs.fields import Fields, read_json

CONFIG_FILE = "config.json"
SUPPORTED = (zlab.ARCHITECTURE, *deepspec.ARCHITECTURES)


def read_config(draft_dir: Path, *, vllm_compat: bool = False) -> DraftConfig:
    """Read `config.json` alone: enough to know family, layout, taps, sizes and depth.

    `vllm_compat` reproduces how vLLM 0.32 reads the causal flag of speculators checkpoints; it is for
    comparing with its local drafter, not for serving.

    Raises CheckpointError naming file, key, what was found and what was expected.
    """
    fields = read_json(draft_dir / CONFIG_FILE)
    if fields.has("speculators_model_type"):
        return speculators.read(fields, vllm_compat=vllm_compat)
    names = fields.texts("architectures") or ()
    supported = [name for name in names if name in SUPPORTED]
    if not supported:
        fields.fail("architectures", "a speculators config or one of " + ", ".join(SUPPORTED))
    _require_qwen3(fields)
    return zlab.read(fields) if supported[0] == zlab.ARCHITECTURE else deepspec.read(fields)


def _require_qwen3(fields: Fields) -> None:
    """One architecture name stands for several stacks (`DSparkDraftModel` also for DeepSeek-V4's)."""
    if fields.text_or("model_type", "qwen3") != "qwen3":
        fields.fail("model_type", "qwen3")
