"""Identical draft tokens on every rank: one broadcast of fixed size a step."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor


class Group(Protocol):
    """What is needed of vLLM's group of tensor-parallel ranks."""

    world_size: int
    rank_in_group: int

    def broadcast(self, input_: Tensor, src: int = 0) -> Tensor: ...


class TokenBroadcast:
    """Draft tokens of a step, from the group's first rank.

    Its size never depends on a step, so that ranks cannot disagree on it. The memory holds ids of the target
    from the start and after any failure, since nothing else is ever written to it.
    """

    def __init__(self, group: Group, max_requests: int, depth: int, device: torch.device) -> None:
        self._group = group
        self.tokens = torch.zeros(max_requests, depth, dtype=torch.int64, device=device)
        """[max_requests, depth]; on the first rank, what `share` sends."""

    @property
    def first(self) -> bool:
        """Whether this is the rank that talks to the server."""
        return self._group.rank_in_group == 0

    def share(self) -> None:
        """Every rank calls it in every step that has drafts; the first one whatever has happened to it."""
        if self._group.world_size > 1:
            self._group.broadcast(self.tokens, src=0)

    def take(self, requests: int) -> Tensor:
        """int64 [requests, depth] of its own: the engine writes into what it gets."""
        return self.tokens[:requests].clone()
