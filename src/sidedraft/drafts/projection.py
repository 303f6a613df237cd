"""A draft's context projection: from the target's aux states to what its keys and values are computed from.

The first step of `Backbone.context_rows`, on its own: whoever holds its two tensors can run it in front of
the wire, where a row then has the draft's width instead of taps x the target's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from sidedraft.drafts.checkpoint import Checkpoint
from sidedraft.drafts.configs import DraftConfig, read_config
from sidedraft.drafts.names import canonical_names, expected_shapes
from sidedraft.drafts.norms import rms_norm
from sidedraft.wire.rows import PROJECTION_DIGITS, Projection

FC = "fc.weight"
NORM = "hidden_norm.weight"


class ContextProjection:
    """`RMS(fc A, hidden_norm)`; formula in docs/drafts.md. Holds copies: no file stays mapped."""

    def __init__(
        self, config: DraftConfig, body: Mapping[str, Tensor], dtype: torch.dtype, device: torch.device | str
    ) -> None:
        """body: `FC` [H, taps x target hidden size] and `NORM` [H] as stored, among others."""
        self.facts = Projection(config.backbone.hidden_size, _digest(config, body))
        self.eps = config.backbone.rms_norm_eps
        self.fc = body[FC].to(dtype=dtype, device=device, copy=True)
        self.norm = body[NORM].to(dtype=dtype, device=device, copy=True)

    def __call__(self, aux: Tensor) -> Tensor:
        """[n, taps x target hidden size] to [n, H], both in the projection's dtype on its device."""
        return rms_norm(F.linear(aux, self.fc), self.norm, self.eps)

    @property
    def nbytes(self) -> int:
        """Memory on its device."""
        return self.fc.nbytes + self.norm.nbytes


def load_projection(
    draft_dir: Path, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> ContextProjection:
    """Read a draft's context projection, and nothing else, from its folder or a bundle.

    Raises CheckpointError.
    """
    config = read_config(draft_dir)
    shapes = expected_shapes(config)
    with Checkpoint(draft_dir) as checkpoint:
        names = canonical_names(draft_dir, checkpoint.names)
        body = {name: checkpoint.floats(names.get(name, name), *shapes[name]) for name in (FC, NORM)}
        return ContextProjection(config, body, dtype, device)


def _digest(config: DraftConfig, body: Mapping[str, Tensor]) -> str:
    """Over all that the result depends on but the number format of the computation, which is allowed to
    differ between the ends as it is between a target and its draft."""
    state = hashlib.blake2b(digest_size=PROJECTION_DIGITS // 2, person=b"sidedraft-proj")
    state.update(repr((config.taps, config.backbone.rms_norm_eps)).encode())
    for name in (FC, NORM):
        tensor = body[name]
        state.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        state.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return state.hexdigest()
