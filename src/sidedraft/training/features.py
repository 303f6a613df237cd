"""What the target did and what its residual stream looked like, in memory and on disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor


@dataclass(slots=True)
class Trajectory:
    """One greedy answer of the target, with the part of its prompt that is its own."""

    ids: Tensor
    """int64 [n]: own prompt tokens, then the answer; token i stands at position prefix length + i."""
    start: int
    """Number of own prompt tokens: `ids[start]` is the answer's first token, the first possible anchor."""
    aux: Tensor
    """float16 [n - 1, row_width]: the last token was never run."""


@dataclass(slots=True)
class Features:
    """Trajectories that share a prefix."""

    name: str
    prefix_ids: Tensor
    """int64 [P]."""
    prefix_aux: Tensor
    """float16 [P, row_width]."""
    trajectories: list[Trajectory]

    @property
    def answer_tokens(self) -> int:
        return sum(len(t.ids) - t.start for t in self.trajectories)


def save_trajectories(path: Path, trajectories: list[Trajectory]) -> None:
    """Write a feature file, whole or not at all. A row costs 2 bytes a value."""
    tensors = {
        "ids": torch.cat([t.ids for t in trajectories]).to(torch.int32),
        "lengths": torch.tensor([len(t.ids) for t in trajectories], dtype=torch.int32),
        "starts": torch.tensor([t.start for t in trajectories], dtype=torch.int32),
        "aux": torch.cat([t.aux for t in trajectories]),
    }
    save_whole(path, tensors)


def load_trajectories(path: Path) -> list[Trajectory]:
    """Read a feature file back."""
    tensors = load_file(path)
    lengths = tensors["lengths"].tolist()
    ids = tensors["ids"].long().split(lengths)
    aux = tensors["aux"].split([length - 1 for length in lengths])
    return [Trajectory(*one) for one in zip(ids, tensors["starts"].tolist(), aux, strict=True)]


def save_whole(path: Path, tensors: dict[str, Tensor]) -> None:
    """Save tensors so that a reader never finds half a file, whenever the writer is killed."""
    part = path.with_suffix(".part")
    save_file(tensors, part)
    part.replace(path)
