"""The taps are where the formats say, and ragged rows do not disturb each other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from sidedraft.targets.tapped import TappedTarget
from support.checkpoints import tiny_target

LAYERS = 6
TAPS = (0, 1, 3, 5, 6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_target(tmp_path_factory.mktemp("target") / "t", layers=LAYERS)


@pytest.fixture(scope="module")
def target(folder: Path) -> TappedTarget:
    return TappedTarget.load(folder, TAPS)


def tokens(count: int, seed: int = 0) -> Tensor:
    return torch.randint(0, 97, (count,), generator=torch.Generator().manual_seed(seed))


def alone(target: TappedTarget, ids: Tensor) -> tuple[Tensor, Tensor]:
    """Logits and aux states of one sequence in one forward."""
    step = target.forward(
        target.new_cache(1, len(ids)), ids[None], torch.tensor([0]), torch.tensor([len(ids)])
    )
    return step.logits[0], step.aux[0]


def test_tap_k_is_what_transformers_calls_hidden_state_k(target: TappedTarget) -> None:
    ids = tokens(12)
    with torch.no_grad():
        reference = target.model(ids[None], output_hidden_states=True)
    logits, aux = alone(target, ids)
    torch.testing.assert_close(logits, reference.logits[0])
    slices = dict(zip(TAPS, aux.split(target.hidden_size, -1), strict=True))
    for tap in TAPS[:-1]:
        torch.testing.assert_close(slices[tap], reference.hidden_states[tap][0])
    last = slices[LAYERS]
    # transformers gives the last state after the final norm; the tap is before it.
    assert not torch.allclose(last, reference.hidden_states[LAYERS][0])
    with torch.no_grad():
        normed = target.model.get_submodule("model.norm")(last)
    torch.testing.assert_close(normed, reference.hidden_states[LAYERS][0])


def test_ragged_requests_in_one_batch_equal_each_alone(target: TappedTarget) -> None:
    sequences = [tokens(15, 1), tokens(4, 2), tokens(9, 3)]
    cache = target.new_cache(3, 16)
    at = torch.zeros(3, dtype=torch.int64)
    seen: list[list[Tensor]] = [[], [], []]
    for counts in ([7, 1, 0], [0, 3, 5], [8, 0, 4]):
        width = max(counts)
        block = torch.zeros(3, width, dtype=torch.int64)
        for row, count in enumerate(counts):
            block[row, :count] = sequences[row][at[row] : at[row] + count]
        step = target.forward(cache, block, at, torch.tensor(counts))
        for row, count in enumerate(counts):
            seen[row].append(torch.cat([step.logits[row, :count], step.aux[row, :count]], -1))
        at = at + torch.tensor(counts)
    for row, ids in enumerate(sequences):
        expected = torch.cat(alone(target, ids), -1)
        torch.testing.assert_close(torch.cat(seen[row]), expected, atol=1e-4, rtol=1e-4)


def test_a_smaller_length_rolls_back_one_request_only(target: TappedTarget) -> None:
    kept, wrong, right = tokens(6, 4), tokens(3, 5), tokens(3, 6)
    other = tokens(9, 7)
    cache = target.new_cache(2, 9)
    first = torch.stack([kept, other[:6]])
    target.forward(cache, first, torch.tensor([0, 0]), torch.tensor([6, 6]))
    target.forward(cache, wrong[None].expand(2, -1), torch.tensor([6, 0]), torch.tensor([3, 0]))
    step = target.forward(cache, torch.stack([right, other[6:]]), torch.tensor([6, 6]), torch.tensor([3, 3]))
    expected, _ = alone(target, torch.cat([kept, right]))
    torch.testing.assert_close(step.logits[0], expected[6:], atol=1e-4, rtol=1e-4)
    expected, _ = alone(target, other)
    torch.testing.assert_close(step.logits[1], expected[6:], atol=1e-4, rtol=1e-4)


def test_logits_can_be_asked_of_last_rows_only_or_not_at_all(target: TappedTarget) -> None:
    ids = tokens(5)
    cache = target.new_cache(2, 5)
    block, none = torch.stack([ids, ids]), torch.zeros(2, dtype=torch.int64)
    counts = torch.tensor([5, 2])
    every = target.forward(cache, block, none, counts)
    last = target.forward(cache, block, none, counts, heads="last")
    torch.testing.assert_close(last.logits[0, 0], every.logits[0, 4])
    torch.testing.assert_close(last.logits[1, 0], every.logits[1, 1])
    assert target.forward(cache, block, none, counts, heads="none").logits.shape == (2, 0, 97)


def test_a_copied_prefix_serves_every_request(target: TappedTarget) -> None:
    prefix, own = tokens(6, 8), tokens(4, 9)
    shared = target.new_cache(1, 6)
    target.forward(shared, prefix[None], torch.tensor([0]), torch.tensor([6]))
    cache = target.new_cache(2, 10)
    cache.copy_from(shared, 6)
    step = target.forward(cache, own[None].expand(2, -1), torch.tensor([6, 6]), torch.tensor([4, 4]))
    expected, _ = alone(target, torch.cat([prefix, own]))
    for row in step.logits:
        torch.testing.assert_close(row, expected[6:], atol=1e-4, rtol=1e-4)


def test_a_request_that_outgrows_the_cache_is_refused(target: TappedTarget) -> None:
    cache = target.new_cache(2, 4)
    with pytest.raises(ValueError, match="5 positions does not fit a cache of 4"):
        target.forward(cache, tokens(3)[None].expand(2, -1), torch.tensor([0, 2]), torch.tensor([3, 3]))


@pytest.mark.parametrize("taps", [(3, 1), (1, 1), (-1, 2), (2, 7)])
def test_taps_must_ascend_and_exist(folder: Path, taps: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="taps must"):
        TappedTarget.load(folder, taps)


def test_a_folder_without_a_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no config\.json there"):
        TappedTarget.load(tmp_path, (1,))


def test_without_taps_there_are_no_aux_states(folder: Path) -> None:
    target = TappedTarget.load(folder, ())
    _, aux = alone(target, tokens(3))
    assert aux.shape == (3, 0)
    assert target.row_width == 0
    assert target.stop_tokens == {2}
