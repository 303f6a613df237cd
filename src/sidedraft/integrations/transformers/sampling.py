"""Choosing tokens from the target's logits, and how many draft tokens survive.

A draft arrives as tokens, so its distribution q is one-hot: q(d) = 1. Exact rejection sampling (Leviathan et
al., 2023) then accepts d with probability min(1, p(d) / q(d)) = p(d), and otherwise samples from the residual
max(p - q, 0), which is p without d, renormalised.

Both happen at once when x is sampled from p and compared with d: x equals d with probability p(d), and an x
that differs is distributed as p without d. The output is thus, token by token, the one that the target alone
would have sampled with the same random numbers. A seeded request reads the same whether or not drafts came
in time, which rejection with random numbers of its own would not give.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np
import torch
from torch import Tensor


class Sampler:
    """Chooses one request's tokens, in order. Its random numbers are its own: neighbours cannot move them."""

    def __init__(self, temperature: float, seed: int | Sequence[int]) -> None:
        """temperature: 0 is greedy, the smallest id winning an exact tie. seed: what numpy seeds from."""
        self._temperature = temperature
        self._random = np.random.default_rng(seed)

    def choose(self, logits: Tensor) -> int:
        """The next token, given the target's logits [V]. Uses one random number, none when greedy."""
        if self._temperature == 0:
            return int(logits.argmax())
        # In float64: a float32 running sum over a large vocabulary misplaces mass of 1e-4 and more.
        total = torch.softmax(logits.double() / self._temperature, dim=-1).cumsum(-1)
        place = self._random.random() * float(total[-1])
        return min(int(torch.searchsorted(total, place, right=True)), len(total) - 1)


def accept(logits: Tensor, draft: Sequence[int], sampler: Sampler) -> list[int]:
    """The output's next tokens: the accepted draft tokens and one more.

    logits: [1 + len(draft), V], row j being the target's word on the place of draft[j]; the last row is the
    bonus, reached only when every draft token was accepted. Returns 1 to 1 + len(draft) tokens.
    """
    kept: list[int] = []
    for row, proposed in zip_longest(logits, draft):
        kept.append(sampler.choose(row))
        if kept[-1] != proposed:
            break
    return kept
