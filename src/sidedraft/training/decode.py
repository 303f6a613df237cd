"""Greedy answers of the target in batches, with the taps of every row."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from sidedraft.targets.tapped import TappedTarget
from sidedraft.training.features import Trajectory


class PrefixedDecoder:
    """Answers prompts that share a prefix; the prefix is run once."""

    def __init__(self, target: TappedTarget, prefix: Sequence[int], stop: frozenset[int]) -> None:
        """prefix: token ids, at least one. stop: tokens that end an answer; they belong to it."""
        self._target = target
        self._stop = torch.tensor(sorted(stop), dtype=torch.int64)
        self._prefix_cache = target.new_cache(1, len(prefix))
        self._prefix = len(prefix)
        step = target.forward(
            self._prefix_cache,
            torch.tensor([list(prefix)]),
            torch.tensor([0]),
            torch.tensor([len(prefix)]),
            heads="none",
        )
        self.prefix_aux = step.aux[0].half()
        """float16 [P, row_width]."""

    def answer(self, prompts: Sequence[Sequence[int]], max_new_tokens: int) -> list[Trajectory]:
        """Answer all prompts (own token ids, prefix excluded, none empty) side by side."""
        target, batch = self._target, len(prompts)
        counts = torch.tensor([len(p) for p in prompts])
        width = int(counts.max())
        cache = target.new_cache(batch, self._prefix + width + max_new_tokens)
        cache.copy_from(self._prefix_cache, self._prefix)
        tokens = torch.tensor([list(p) + [0] * (width - len(p)) for p in prompts])
        lengths = torch.full((batch,), self._prefix)
        step = target.forward(cache, tokens, lengths, counts, heads="last")
        ids = [[*p] for p in prompts]
        aux = [[rows[:count].half()] for rows, count in zip(step.aux, counts.tolist(), strict=True)]
        running = torch.ones(batch, dtype=torch.int64)
        for made in range(1, max_new_tokens + 1):
            lengths = lengths + counts
            chosen = step.logits[:, -1].argmax(-1)
            for index in running.nonzero().flatten().tolist():
                ids[index].append(int(chosen[index]))
            running = running * ~torch.isin(chosen, self._stop)
            if made == max_new_tokens or not running.any():
                break
            counts = running
            step = target.forward(cache, chosen[:, None], lengths, counts, heads="last")
            for index in running.nonzero().flatten().tolist():
                aux[index].append(step.aux[index].half())
        return [
            Trajectory(torch.tensor(i), len(p), _own_memory(a))
            for i, p, a in zip(ids, prompts, aux, strict=True)
        ]


def _own_memory(rows: list[Tensor]) -> Tensor:
    return torch.cat(rows).clone()
