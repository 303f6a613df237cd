"""Which trajectories and anchors a step trains on, as a function of seed and step alone.

Most of an answer of fixed form is easy, and learned soon. Anchors are drawn more often where n-gram lookup
does not find the next token: there is what the draft is for, and there a real run's steps begin.

No random state is carried from step to step, so a resumed run draws what an uninterrupted one would.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from sidedraft.training.batches import anchors_of
from sidedraft.training.features import Features, Trajectory
from sidedraft.training.ngram import ngram_matches
from sidedraft.training.recipe import Recipe

_EPOCH, _STEP = 1, 2
"""Streams of random numbers: one for orders, one for anchors."""


class Schedule:
    """Draws from several prompt sets; a step stays within one set, whose prefix all its blocks share."""

    def __init__(self, sets: Sequence[Features], recipe: Recipe) -> None:
        self._sets = sets
        self._recipe = recipe
        self._usable = [[t for t in one.trajectories if len(anchors_of(t))] for one in sets]
        if not any(self._usable):
            raise ValueError("no answer of the target is two tokens long; there is nothing to train on")
        self._weights = [
            [self._difficulty(one, t) for t in usable] for one, usable in zip(sets, self._usable, strict=True)
        ]

    def draw(self, step: int) -> tuple[Features, list[Trajectory], list[Tensor]]:
        """The step's prompt set, trajectories, and anchors of each."""
        recipe = self._recipe
        sizes = [math.ceil(len(usable) / recipe.sequences) for usable in self._usable]
        epoch, place = divmod(step, sum(sizes))
        order = torch.randperm(sum(sizes), generator=self._generator(_EPOCH, epoch))
        chosen = int(order[place])
        index = 0
        while chosen >= sizes[index]:
            chosen -= sizes[index]
            index += 1
        usable = self._usable[index]
        inside = torch.randperm(len(usable), generator=self._generator(_EPOCH, epoch)).tolist()
        # The last group of an epoch wraps around, so that every step trains on as many.
        picked = [inside[(chosen * recipe.sequences + i) % len(usable)] for i in range(recipe.sequences)]
        generator = self._generator(_STEP, step)
        anchors = [self._anchors(usable[i], self._weights[index][i], generator) for i in picked]
        return self._sets[index], [usable[i] for i in picked], anchors

    def _anchors(self, trajectory: Trajectory, weights: Tensor, generator: torch.Generator) -> Tensor:
        """`anchors` of them, ascending: without repetition where the answer has as many."""
        every, wanted = anchors_of(trajectory), self._recipe.anchors
        places = torch.multinomial(weights, min(wanted, len(every)), generator=generator)
        return every[places[torch.arange(wanted) % len(every)].sort().values]

    def _difficulty(self, features: Features, trajectory: Trajectory) -> Tensor:
        """How often each anchor is drawn: float [n]."""
        found = torch.tensor(ngram_matches(features, trajectory, 1, low=1))
        return torch.where(found > 0, self._recipe.easy_share, 1.0)

    def _generator(self, stream: int, index: int) -> torch.Generator:
        seed = (self._recipe.seed * 4 + stream) * 1_000_003 + index
        return torch.Generator().manual_seed(seed)


def learning_rate(step: int, recipe: Recipe) -> float:
    """Linear warm-up, then half a cosine down to a fiftieth."""
    warm = min(1.0, (step + 1) / max(1, recipe.warmup))
    return recipe.learning_rate * warm * (0.5 * (1 + math.cos(math.pi * step / recipe.steps)) + 0.02)
