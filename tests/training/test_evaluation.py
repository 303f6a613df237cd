"""The walk counts what a real greedy run would."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from sidedraft.training.collect import Source
from sidedraft.training.evaluation import evaluate, walk
from sidedraft.training.features import Features
from sidedraft.training.module import DSparkModule
from sidedraft.training.recipe import Recipe
from sidedraft.training.sizes import draft_sizes
from sidedraft.training.vocabulary import DraftVocabulary
from sidedraft.training.warm_start import warm_start


def test_a_walk_jumps_over_what_was_accepted() -> None:
    # Anchors 0, 1, 4, 5 of a six-token answer; the last step can give one token only.
    found = walk([[10, 11, 12, 13, 14, 15]], [[0, 2, 9, 9, 1]], depth=3)
    assert (found.steps, found.tokens, found.accepted) == (3, 5, [2, 1, 0])
    assert found.length == 5 / 3
    assert found.by_position == [2 / 3, 1 / 3, 0]


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=30), min_size=1, max_size=4))
def test_every_token_is_counted_once(matches: list[list[int]]) -> None:
    answers = [[0] * (len(one) + 1) for one in matches]
    # No more can be right than there are tokens left.
    bounded = [[min(m, len(one) - at) for at, m in enumerate(one)] for one in matches]
    found = walk(answers, bounded, depth=4)
    assert found.tokens == sum(len(one) for one in matches)
    assert all(low >= high for low, high in zip(found.accepted, found.accepted[1:], strict=False))


def test_nothing_to_walk_over_is_no_error() -> None:
    assert walk([[1]], [[]], depth=2).length == 0.0


def test_a_draft_that_knows_the_answer_is_accepted_in_full(
    source: Source, features: Features, recipe: Recipe
) -> None:
    """The Markov head alone decides here: set to a successor table of an answer, it drafts that answer."""
    ids = torch.arange(20, 20 + recipe.depth * 2)
    vocabulary = DraftVocabulary.of(torch.arange(97), 97)
    module = made(source, features, vocabulary, Recipe(taps=recipe.taps, depth=recipe.depth, markov_rank=97))
    with torch.no_grad():
        module.norm.weight.zero_()
        module.get_parameter("markov_head.markov_w1.weight").copy_(torch.eye(97))
        successor = torch.zeros(97, 97)
        successor[ids[1:], ids[:-1]] = 1.0
        module.get_parameter("markov_head.markov_w2.weight").copy_(successor)
    one = features.trajectories[0]
    answer = type(one)(
        torch.cat([one.ids[: one.start], ids]), one.start, torch.zeros(one.start + len(ids) - 1, 96)
    )
    known = Features("known", features.prefix_ids, features.prefix_aux, [answer])
    found = evaluate(module, vocabulary, known)
    assert found.tokens == len(ids) - 1
    assert found.steps == 2


def made(source: Source, features: Features, vocabulary: DraftVocabulary, recipe: Recipe) -> DSparkModule:
    target = source.target
    module = DSparkModule(
        draft_sizes(target, recipe), target.embedding.detach(), target.head[vocabulary.target_ids].detach()
    )
    warm_start(module, target, [features], recipe.seed)
    return module
