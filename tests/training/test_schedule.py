"""What a step trains on follows from seed and step alone."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from sidedraft.training.features import Features, Trajectory
from sidedraft.training.recipe import Recipe
from sidedraft.training.schedule import Schedule, learning_rate


def sets(*counts: int) -> list[Features]:
    """Prompt sets of so many trajectories; a trajectory's first token is its number."""
    made = []
    for name, count in enumerate(counts):
        trajectories = [
            Trajectory(torch.tensor([i, *range(10)]), 1, torch.zeros(10, 2)) for i in range(count)
        ]
        made.append(Features(str(name), torch.tensor([0]), torch.zeros(1, 2), trajectories))
    return made


RECIPE = Recipe(sequences=3, anchors=4)


def test_an_epoch_visits_every_trajectory() -> None:
    schedule = Schedule(sets(6, 3), RECIPE)
    seen: Counter[tuple[str, int]] = Counter()
    for step in range(3):
        features, trajectories, _ = schedule.draw(step)
        seen.update((features.name, int(t.ids[0])) for t in trajectories)
    assert seen == {("0", i): 1 for i in range(6)} | {("1", i): 1 for i in range(3)}


def test_a_short_last_group_is_filled_up() -> None:
    schedule = Schedule(sets(4), RECIPE)
    drawn = [len(schedule.draw(step)[1]) for step in range(4)]
    assert drawn == [3, 3, 3, 3]


def test_draws_depend_on_seed_and_step_only() -> None:
    one, other = Schedule(sets(5), RECIPE), Schedule(sets(5), RECIPE)
    other.draw(0)
    assert torch.equal(torch.stack(one.draw(3)[2]), torch.stack(other.draw(3)[2]))
    third = Schedule(sets(5), Recipe(sequences=3, anchors=4, seed=1))
    assert not torch.equal(torch.stack(one.draw(3)[2]), torch.stack(third.draw(3)[2]))


def test_anchors_do_not_repeat_while_there_are_enough() -> None:
    for anchors in Schedule(sets(3), RECIPE).draw(0)[2]:
        assert len(set(anchors.tolist())) == 4
        assert anchors.tolist() == sorted(anchors.tolist())


def test_anchors_that_lookup_gets_right_are_drawn_less_often() -> None:
    [only] = sets(1)
    # After the prefix 0 1 2 ... 9, the answer's first half repeats it and its second half is new.
    only.prefix_ids = torch.arange(10)
    ids = torch.tensor([50, *range(8), *range(60, 68)])
    only.trajectories[0] = Trajectory(ids, 1, torch.zeros(len(ids) - 1, 2))
    schedule = Schedule([only], Recipe(sequences=1, anchors=4, easy_share=0.1))
    drawn = [int(a) for step in range(100) for a in schedule.draw(step)[2][0]]
    assert sum(a >= 8 for a in drawn) > 2 * sum(a < 8 for a in drawn)


def test_answers_of_one_token_are_refused() -> None:
    [only] = sets(1)
    only.trajectories[0] = Trajectory(torch.tensor([1, 2]), 1, torch.zeros(1, 2))
    with pytest.raises(ValueError, match="nothing to train on"):
        Schedule([only], RECIPE)


def test_the_rate_warms_up_and_falls() -> None:
    recipe = Recipe(steps=100, warmup=10, learning_rate=1.0)
    rates = [learning_rate(step, recipe) for step in range(100)]
    assert rates[0] < rates[5] < rates[10]
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0 < rates[-1] < 0.03
