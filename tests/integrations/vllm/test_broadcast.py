"""The one broadcast of a step."""

from __future__ import annotations

import torch

from sidedraft.integrations.vllm.broadcast import TokenBroadcast
from support.vllm_stub import PairGroup, SoloGroup

CPU = torch.device("cpu")


def test_what_is_sent_has_one_size_whatever_the_batch() -> None:
    group = PairGroup()
    first, second = TokenBroadcast(group, 5, 3, CPU), TokenBroadcast(PairGroup(group), 5, 3, CPU)
    assert (first.first, second.first) == (True, False)
    for count in (1, 5):
        first.tokens[:count] = torch.arange(3) + count
        first.share()
        assert group.sent[-1].shape == (5, 3)
        second.share()
        assert (
            second.take(count).tolist()
            == first.take(count).tolist()
            == [[count, count + 1, count + 2]] * count
        )


def test_one_rank_shares_with_nobody() -> None:
    alone = TokenBroadcast(SoloGroup(), 2, 3, CPU)
    alone.share()
    assert alone.first
    assert alone.take(2).tolist() == [[0, 0, 0]] * 2


def test_the_engine_may_write_into_what_it_takes() -> None:
    tokens = TokenBroadcast(SoloGroup(), 2, 3, CPU)
    taken = tokens.take(2)
    taken[:, 1:] = -1
    assert int(tokens.tokens.min()) == 0
    assert taken.dtype is torch.int64
