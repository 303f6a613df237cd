"""Query blocks see what they would see when served, and are asked what the target said."""

from __future__ import annotations

import torch

from sidedraft.training.batches import NO_LABEL, anchors_of, make_batch
from sidedraft.training.features import Features, Trajectory
from sidedraft.training.vocabulary import DraftVocabulary, choose_vocabulary

PREFIX, DEPTH, MASK = 3, 2, 0


def features() -> Features:
    def trajectory(ids: list[int], start: int) -> Trajectory:
        aux = torch.arange(len(ids) - 1)[:, None] + torch.tensor(ids[:-1])[:, None] * 100.0
        return Trajectory(torch.tensor(ids), start, aux.half())

    one, other = trajectory([5, 6, 7, 8, 9], 2), trajectory([5, 9, 6], 1)
    return Features("n", torch.tensor([1, 2, 3]), torch.full((PREFIX, 1), 7.0).half(), [one, other])


def test_rows_see_prefix_own_past_and_their_block() -> None:
    given = features()
    to_draft = DraftVocabulary.of(torch.tensor([6, 8]), 10).to_draft
    batch = make_batch(
        given, given.trajectories, [torch.tensor([2, 3]), torch.tensor([1, 1])],
        depth=DEPTH, mask_token=MASK, to_draft=to_draft,
    )  # fmt: skip
    # Columns: 3 of the prefix, 4 of the longest trajectory, 4 of the blocks.
    expected = torch.tensor(
        [
            [1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0],
            [1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0],
            [1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1],
            [1, 1, 1, 1, 1, 1, 0, 0, 0, 1, 1],
        ],
        dtype=torch.bool,
    )
    assert torch.equal(batch.visible[0, 0], expected)
    assert batch.visible[1, 0, 0].tolist() == [True] * 4 + [False] * 3 + [True] * 2 + [False] * 2
    assert batch.tokens.tolist() == [[7, MASK, 8, MASK], [9, MASK, 9, MASK]]
    assert batch.positions.tolist() == [[5, 6, 6, 7], [4, 5, 4, 5]]
    assert batch.truth.tolist() == [[8, 9, 9, NO_LABEL], [6, NO_LABEL, 6, NO_LABEL]]
    assert batch.labels.tolist() == [[1, NO_LABEL, NO_LABEL, NO_LABEL], [0, NO_LABEL, 0, NO_LABEL]]
    assert batch.previous[0].tolist() == [7, 8, 8, 9]
    assert torch.equal(batch.aux[1, 2:], torch.zeros(2, 1))
    assert torch.equal(batch.aux[0], given.trajectories[0].aux.float())


def test_anchors_are_answer_tokens_with_a_successor() -> None:
    one, other = features().trajectories
    assert anchors_of(one).tolist() == [2, 3]
    assert anchors_of(other).tolist() == [1]


def test_the_vocabulary_takes_the_most_frequent_then_the_lowest() -> None:
    vocabulary = choose_vocabulary([features()], 20, 9)
    # Seen: 1 2 3 5 6 7 8 9; the ninth is the lowest unseen.
    assert vocabulary.target_ids.tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert vocabulary.d2t.tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1]
    assert choose_vocabulary([features()], 20, 3).target_ids.tolist() == [5, 6, 9]
    assert vocabulary.to_draft[9] == 8
    assert vocabulary.to_draft[4] == NO_LABEL
