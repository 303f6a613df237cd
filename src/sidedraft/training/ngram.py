"""The free baseline: drafts looked up in the request's own tokens.

A draft is what followed the most recent earlier occurrence of the longest suffix of the tokens so far. A
trained draft that does not beat it is not worth its memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from sidedraft.training.evaluation import Acceptance, walk
from sidedraft.training.features import Features, Trajectory

LONGEST = 8
"""Tokens of the longest suffix that is looked up."""


class NgramIndex:
    """Where each n-gram of a growing sequence was seen last, for n from `low` to `high`."""

    def __init__(self, low: int, high: int) -> None:
        if not 1 <= low <= high:
            raise ValueError(f"expected 1 <= low <= high, got {(low, high)}")
        self._sizes = range(high, low - 1, -1)
        self._tokens: list[int] = []
        self._after: dict[tuple[int, ...], int] = {}
        """n-gram to the index behind its latest occurrence that has a successor."""

    def append(self, token: int) -> None:
        """Take in one more token of the sequence."""
        end = len(self._tokens)
        for size in self._sizes:
            if size <= end:
                self._after[tuple(self._tokens[end - size :])] = end
        self._tokens.append(token)

    def draft(self, depth: int) -> list[int]:
        """At most `depth` tokens; none when no suffix occurred before."""
        for size in self._sizes:
            if size <= len(self._tokens):
                at = self._after.get(tuple(self._tokens[len(self._tokens) - size :]))
                if at is not None:
                    return self._tokens[at : at + depth]
        return []


def ngram_acceptance(
    features: Features, depth: int, *, low: int, high: int = LONGEST, limit: int | None = None
) -> Acceptance:
    """Acceptance of lookup in prompt (prefix included) and answer so far. low, high: suffix lengths tried."""
    chosen = features.trajectories[:limit]
    answers = [t.ids[t.start :].tolist() for t in chosen]
    matches = [ngram_matches(features, t, depth, low=low, high=high) for t in chosen]
    return walk(answers, matches, depth)


def ngram_matches(
    features: Features, trajectory: Trajectory, depth: int, *, low: int, high: int = LONGEST
) -> list[int]:
    """Right draft tokens from the first on, for every anchor of a trajectory."""
    index = NgramIndex(low, high)
    ids = trajectory.ids.tolist()
    for token in features.prefix_ids.tolist() + ids[: trajectory.start]:
        index.append(token)
    answer, found = ids[trajectory.start :], []
    for place, token in enumerate(answer[:-1]):
        index.append(token)
        found.append(_matching(index.draft(depth), answer[place + 1 :]))
    return found


def _matching(draft: Sequence[int], truth: Sequence[int]) -> int:
    for place, (one, other) in enumerate(zip(draft, truth, strict=False)):
        if one != other:
            return place
    return min(len(draft), len(truth))
