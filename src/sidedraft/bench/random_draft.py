"""A draft with random weights: as wide and as deep as wanted, and quick to make."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file

from sidedraft.drafts.base import Layout
from sidedraft.drafts.checkpoint import SINGLE_FILE
from sidedraft.drafts.configs import BackboneConfig, DraftConfig, RopeConfig, zlab
from sidedraft.drafts.configs.reader import CONFIG_FILE
from sidedraft.drafts.names import EMBEDDING, HEAD, expected_shapes


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomDraft:
    """Sizes of a DFlash draft. Taps and the target's hidden size make the rows; the rest is what it computes,
    small by default, so that a server of it shows what serving costs and not what a model costs."""

    taps: int = 5
    target_hidden_size: int = 4096
    depth: int = 7
    hidden_size: int = 64
    layers: int = 1
    head_dim: int = 32
    vocab_size: int = 1024
    max_position: int = 65536

    def config(self) -> DraftConfig:
        return DraftConfig(
            family="dflash",
            backbone=BackboneConfig(
                hidden_size=self.hidden_size,
                intermediate_size=2 * self.hidden_size,
                layers=self.layers,
                heads=self.hidden_size // self.head_dim,
                kv_heads=1,
                head_dim=self.head_dim,
                rms_norm_eps=1e-6,
                attention_bias=False,
                rope=RopeConfig("default", theta=10_000.0),
                max_position=self.max_position,
                vocab_size=self.vocab_size,
            ),
            layout=Layout.BONUS,
            taps=tuple(range(1, self.taps + 1)),
            target_hidden_size=self.target_hidden_size,
            target_vocab_size=self.vocab_size,
            draft_vocab_size=self.vocab_size,
            mask_token_id=0,
            block_size=self.depth + 1,
            windows=(None,) * self.layers,
            causal=(False,) * self.layers,
        )

    def write(self, folder: Path) -> Path:
        """A folder for `sidedraft serve --bundle`, always with the same weights (float32)."""
        config = self.config()
        shapes = expected_shapes(config)
        shapes |= dict.fromkeys((EMBEDDING, HEAD), (self.vocab_size, self.hidden_size))
        generator = torch.Generator().manual_seed(0)
        tensors = {
            # Outputs of about the size of the inputs; norms, of one dimension, near 1.
            name: torch.randn(shape, generator=generator) / shape[1] ** 0.5
            if len(shape) == 2
            else 1 + 0.1 * torch.randn(shape, generator=generator)
            for name, shape in shapes.items()
        }
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG_FILE).write_text(json.dumps(zlab.write(config), indent=2) + "\n")
        save_file(tensors, folder / SINGLE_FILE, metadata={"format": "pt"})
        return folder
