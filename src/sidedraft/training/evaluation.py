"""How many draft tokens the target would accept: an exact walk over its stored greedy answers.

Greedy verification only ever compares drafts with what the target says, which a trajectory holds. So the walk
gives what a real run gives, without running the target.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sidedraft.training.batches import NO_LABEL, anchors_of, make_batch
from sidedraft.training.features import Features, Trajectory
from sidedraft.training.module import DSparkModule
from sidedraft.training.vocabulary import DraftVocabulary


@dataclass(slots=True)
class Acceptance:
    """Counts over the steps of all walks."""

    depth: int
    steps: int
    tokens: int
    accepted: list[int]
    """Steps in which draft token j was accepted, for j from 0."""

    @property
    def length(self) -> float:
        """Tokens a step gave, its bonus token included."""
        return self.tokens / self.steps if self.steps else 0.0

    @property
    def by_position(self) -> list[float]:
        return [count / self.steps if self.steps else 0.0 for count in self.accepted]

    def to_json(self) -> dict[str, Any]:
        return {
            "acceptance_length": round(self.length, 4),
            "by_position": [round(share, 4) for share in self.by_position],
            "steps": self.steps,
            "tokens": self.tokens,
        }


def walk(answers: Sequence[Sequence[int]], matches: Sequence[Sequence[int]], depth: int) -> Acceptance:
    """Walk over answers. matches[i][a]: how many draft tokens made with anchor a of answer i are right.

    The answer's first token costs a step of its own, the prompt's, and is not counted.
    """
    found = Acceptance(depth, 0, 0, [0] * depth)
    for answer, matching in zip(answers, matches, strict=True):
        at = 0
        while at < len(answer) - 1:
            right = matching[at]
            given = min(right + 1, len(answer) - 1 - at)
            found.steps += 1
            found.tokens += given
            for place in range(right):
                found.accepted[place] += 1
            at += given
    return found


@torch.no_grad()
def evaluate(
    module: DSparkModule, vocabulary: DraftVocabulary, features: Features, limit: int | None = None
) -> Acceptance:
    """The draft's acceptance on the first `limit` trajectories, all of them when None."""
    chosen = features.trajectories[:limit]
    answers = [t.ids[t.start :].tolist() for t in chosen]
    matches = [_matches(module, vocabulary, features, t) for t in chosen]
    return walk(answers, matches, module.sizes.depth)


def _matches(
    module: DSparkModule, vocabulary: DraftVocabulary, features: Features, trajectory: Trajectory
) -> list[int]:
    """Right draft tokens from the first on, for every anchor of a trajectory."""
    anchors = anchors_of(trajectory)
    if not len(anchors):
        return []
    depth = module.sizes.depth
    batch = make_batch(
        features,
        [trajectory],
        [anchors],
        depth=depth,
        mask_token=module.sizes.mask_token,
        to_draft=vocabulary.to_draft,
    )
    hidden = module.block(batch).view(len(anchors), depth, -1)
    drafts = greedy_drafts(module, vocabulary, hidden, batch.tokens.view(-1, depth)[:, 0])
    right = (drafts == batch.truth.view(-1, depth)) & (batch.truth.view(-1, depth) != NO_LABEL)
    counts: list[int] = right.long().cumprod(1).sum(1).tolist()
    return counts


def greedy_drafts(
    module: DSparkModule, vocabulary: DraftVocabulary, hidden: Tensor, anchors: Tensor
) -> Tensor:
    """Draft tokens of blocks, each row's Markov head fed with the draft before. hidden: [n, K, H]; anchors:
    int64 [n], target ids. Returns int64 [n, K], target ids."""
    previous, drafts = anchors, []
    for place in range(hidden.shape[1]):
        logits, _ = module.logits(hidden[:, place], previous)
        previous = vocabulary.target_ids[logits.argmax(-1)]
        drafts.append(previous)
    return torch.stack(drafts, 1)
