"""What rows see, against the rule written out; and grouped attention against its plain form."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sidedraft.drafts.attention import attend, block_positions, masks_by_kind, visibility


class Columns:
    """The part of a Context that masks are made of."""

    def __init__(self, positions: torch.Tensor, present: torch.Tensor) -> None:
        self.positions = positions
        self.present = present


@settings(max_examples=100, deadline=None)
@given(
    anchor=st.integers(0, 30),
    rows=st.integers(1, 5),
    holes=st.sets(st.integers(0, 29)),
    window=st.none() | st.integers(1, 12),
    causal=st.booleans(),
)
def test_a_row_sees_exactly_what_the_rule_says(
    anchor: int, rows: int, holes: set[int], window: int | None, causal: bool
) -> None:
    positions = torch.tensor([[*range(30), *range(anchor, anchor + rows)]])
    present = torch.tensor([[p < anchor and p not in holes for p in range(30)] + [True] * rows])
    mask = visibility(
        Columns(positions, present),
        block_positions(torch.tensor([anchor]), rows),
        window,
        causal=causal,
        group=1,
    ).expand(1, 1, rows, 30 + rows)
    for row in range(rows):
        for column in range(30 + rows):
            distance = anchor + row - int(positions[0, column])
            seen = bool(present[0, column])
            if causal and distance < 0:
                seen = False
            if window is not None and abs(distance) >= window:
                seen = False
            assert bool(mask[0, 0, row, column]) is seen


def test_layers_of_one_kind_share_a_mask() -> None:
    columns = Columns(torch.arange(9)[None], torch.ones(1, 9, dtype=torch.bool))
    positions = block_positions(torch.tensor([6]), 3)
    masks = masks_by_kind(columns, positions, (4, None, 4, 4), (True, False, True, False), 2)
    assert masks[0] is masks[2]
    assert len({id(mask) for mask in masks}) == 3


def test_folding_heads_into_rows_changes_nothing() -> None:
    torch.manual_seed(0)
    B, Q, heads, kv_heads, S, d = 2, 3, 6, 2, 11, 8
    query, keys, values = (
        torch.randn(B, Q, heads, d),
        torch.randn(B, kv_heads, S, d),
        torch.randn(B, kv_heads, S, d),
    )
    rows = torch.rand(B, Q, S) < 0.6
    rows[..., -1] = True
    mask = rows.repeat_interleave(heads // kv_heads, dim=1).unsqueeze(1)
    found = attend(query, keys, values, mask).view(B, Q, heads, d)
    for head in range(heads):
        shared = head // (heads // kv_heads)
        scores = query[:, :, head] @ keys[:, shared].transpose(1, 2) / math.sqrt(d)
        weights = scores.masked_fill(~rows, -torch.inf).softmax(-1)
        torch.testing.assert_close(found[:, :, head], weights @ values[:, shared], atol=1e-5, rtol=0)
