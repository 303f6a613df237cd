"""The baseline looks up what it says it looks up."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from sidedraft.training.features import Features, Trajectory
from sidedraft.training.ngram import NgramIndex, ngram_acceptance


def brute(tokens: list[int], low: int, high: int, depth: int) -> list[int]:
    """The definition, word for word: longest suffix first, most recent occurrence before the end."""
    for size in range(min(high, len(tokens)), low - 1, -1):
        suffix = tokens[len(tokens) - size :]
        for start in range(len(tokens) - size - 1, -1, -1):
            if tokens[start : start + size] == suffix:
                return tokens[start + size : start + size + depth]
    return []


@given(st.lists(st.integers(0, 3), max_size=40), st.integers(1, 3), st.integers(0, 4), st.integers(1, 5))
def test_the_index_equals_a_search(tokens: list[int], low: int, more: int, depth: int) -> None:
    index = NgramIndex(low, low + more)
    for token in tokens:
        index.append(token)
    assert index.draft(depth) == brute(tokens, low, low + more, depth)


def test_acceptance_of_a_repeated_answer() -> None:
    # The answer repeats the prefix, so after its first two tokens everything can be looked up.
    prefix = [1, 2, 3, 4, 5, 6, 7, 8]
    ids = torch.tensor([9, *prefix])
    one = Trajectory(ids, 1, torch.zeros(len(ids) - 1, 4, dtype=torch.float16))
    features = Features("n", torch.tensor(prefix), torch.zeros(8, 4, dtype=torch.float16), [one])
    found = ngram_acceptance(features, 3, low=1)
    # Seven tokens after the first: steps of 4 and 3.
    assert (found.steps, found.tokens, found.accepted) == (2, 7, [2, 2, 2])
    assert ngram_acceptance(features, 3, low=2).steps == 3
