"""Accepting drafts never changes the distribution that the target alone would sample from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from sidedraft.integrations.transformers.sampling import Sampler, accept

VOCAB = 5
TEMPERATURE = 0.7
FIRST = torch.tensor([1.0, 0.2, -0.5, 0.6, -1.5])
NEXT = torch.randn(VOCAB, VOCAB, generator=torch.Generator().manual_seed(3))
"""A target whose next token depends on the last one only."""
SAMPLES = 12_000
CHI2_24_DEGREES = 51.2
"""Exceeded once in a thousand when the distribution is right."""

Accept = Callable[[Tensor, Sequence[int], Sampler], list[int]]


def probabilities(logits: Tensor) -> np.ndarray:
    return torch.softmax(logits.double() / TEMPERATURE, -1).numpy()


def chi_square(drafts: Sequence[int], accept: Accept, seed: int) -> float:
    """Of the first two tokens of many outputs, made with these drafts, against the target's own pairs."""
    sampler = Sampler(TEMPERATURE, seed)
    rows = torch.stack([FIRST, *(NEXT[token] for token in drafts)])
    seen: Counter[tuple[int, int]] = Counter()
    for _ in range(SAMPLES):
        tokens = accept(rows, drafts, sampler)
        if len(tokens) < 2:
            tokens += accept(NEXT[tokens[-1]][None], [], sampler)
        seen[tokens[0], tokens[1]] += 1
    first, then = probabilities(FIRST), probabilities(NEXT)
    expected = SAMPLES * first[:, None] * then
    found = np.array([[seen[x, y] for y in range(VOCAB)] for x in range(VOCAB)])
    return float(((found - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("drafts", [(0, 2), (4, 4), (3, 0)])
def test_pairs_follow_the_target_whatever_the_draft_says(drafts: Sequence[int]) -> None:
    assert chi_square(drafts, accept, seed=11) < CHI2_24_DEGREES


def keeps_rejected_mass(logits: Tensor, draft: Sequence[int], sampler: Sampler) -> list[int]:
    """Wrong: after a rejection samples from p, not from p without the draft token."""
    kept = []
    for row, proposed in zip(logits, [*draft, None], strict=True):
        kept.append(sampler.choose(row))
        if kept[-1] != proposed:
            kept[-1] = sampler.choose(row)
            break
    return kept


def believes_the_draft(logits: Tensor, draft: Sequence[int], sampler: Sampler) -> list[int]:
    """Wrong: takes q(d) for 1/2, and so accepts twice as often."""
    kept = []
    for row, proposed in zip(logits, [*draft, None], strict=True):
        tries = {sampler.choose(row), sampler.choose(row)}
        kept.append(proposed if proposed in tries else tries.pop())
        if kept[-1] != proposed:
            break
    return kept


@pytest.mark.parametrize("wrong", [keeps_rejected_mass, believes_the_draft])
def test_the_statistic_notices_a_wrong_acceptance(wrong: Accept) -> None:
    assert chi_square((0, 2), wrong, seed=11) > CHI2_24_DEGREES


def test_acceptance_probability_is_the_targets_probability() -> None:
    sampler = Sampler(TEMPERATURE, 5)
    rows = torch.stack([FIRST, NEXT[3]])
    accepted = sum(len(accept(rows, [3], sampler)) == 2 for _ in range(4000)) / 4000
    assert accepted == pytest.approx(probabilities(FIRST)[3], abs=0.025)


def test_a_seed_gives_the_same_text_with_any_drafts() -> None:
    def text(drafts_of: Callable[[int], list[int]]) -> list[int]:
        sampler, tokens = Sampler(1.0, (7, 0)), [0]
        while len(tokens) < 200:
            draft = drafts_of(len(tokens))
            tokens += accept(torch.stack([NEXT[t] for t in [tokens[-1], *draft]]), draft, sampler)
        return tokens[:200]

    plain = text(lambda _: [])
    assert text(lambda length: [length % VOCAB, 1, 3]) == plain
    assert text(lambda length: plain[length : length + 3]) == plain
    assert len(set(plain)) == VOCAB


def test_greedy_keeps_the_agreeing_start_and_the_targets_own_token() -> None:
    logits = torch.eye(VOCAB)[[2, 4, 1]]
    greedy = Sampler(0.0, 0)
    assert accept(logits, [2, 4], greedy) == [2, 4, 1]
    assert accept(logits, [2, 0], greedy) == [2, 4]
    assert accept(logits, [3, 4], greedy) == [2]
    assert accept(logits[:1], [], greedy) == [2]


def test_tokens_of_no_probability_are_never_sampled() -> None:
    logits = torch.tensor([-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf])
    sampler = Sampler(1.0, 0)
    assert {sampler.choose(logits) for _ in range(500)} == {1, 3}
