"""A draft that computes nothing and remembers what it was shown.

Its rows are elementwise in (aux, position), so that they are equal to the bit in any batch, and say which
position and which aux row they came from. A proposal's first token is the number of the record of what
attention was given for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from sidedraft.drafts.base import Context, DraftShape, Family, Layout, Proposal

VOCAB = 1 << 20


def fake_shape(
    *,
    window: int | None = None,
    layout: Layout = Layout.BONUS,
    max_depth: int = 3,
    max_position: int = 4096,
    layers: int = 2,
) -> DraftShape:
    return DraftShape(
        layers=layers,
        heads=2,
        kv_heads=1,
        head_dim=4,
        hidden_size=8,
        taps=(1, 3),
        target_hidden_size=2,
        vocab_size=VOCAB,
        draft_vocab_size=VOCAB,
        max_depth=max_depth,
        layout=layout,
        windows=(window,) * layers,
        causal=(False,) * layers,
        max_position=max_position,
    )


@dataclass
class Seen:
    """What attention was given for one query block."""

    anchor: int
    anchor_position: int
    depth: int
    batch: int
    positions: Tensor
    """int64 [n]: of the context rows present, in column order."""
    rows: Tensor
    """[n, layers, 2, kv_heads, head_dim], of the context rows present."""


@dataclass
class FakeDraft:
    shape: DraftShape = field(default_factory=fake_shape)
    family: Family = field(default_factory=lambda: Family("fake", "rowwise"))
    identity: str = "00"
    dtype: torch.dtype = torch.float32
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    seen: list[Seen] = field(default_factory=list)
    computed: int = 0
    remember: bool = True
    """False: nothing is kept of what was seen."""
    fail: str = ""
    """`rows` or `propose` raises once."""

    def context_rows(self, aux: Tensor, positions: Tensor) -> Tensor:
        if self.fail == "rows":
            self.fail = ""
            raise RuntimeError("rows")
        self.computed += len(aux)
        return self.rows_of(aux, positions)

    projection = None
    """This family has no such step."""

    def rows_of(self, aux: Tensor, positions: Tensor) -> Tensor:
        layers = torch.arange(1, 2 * self.shape.layers + 1, dtype=aux.dtype).view(-1, 2)
        return (aux[:, None, None, None, :] + positions.to(aux.dtype)[:, None, None, None, None]) * layers[
            None, :, :, None, None
        ]

    def propose(self, anchors: Tensor, positions: Tensor, depth: int, context: Context) -> Proposal:
        if self.fail == "propose":
            self.fail = ""
            raise RuntimeError("propose")
        shape, block = self.shape, self.shape.query_rows(depth)
        tokens = torch.zeros(len(anchors), depth, dtype=torch.int64)
        finite = torch.ones(len(anchors), dtype=torch.bool)
        for layer in range(shape.layers):
            own = torch.full((len(anchors), block, shape.kv_heads, shape.head_dim), -1.0, dtype=self.dtype)
            context.write_block(layer, own, own - 1)
        rows = torch.stack(
            [torch.stack([context.keys(i), context.values(i)]) for i in range(shape.layers)]
        ).permute(2, 4, 0, 1, 3, 5)  # [B, S, layers, 2, kv_heads, head_dim]
        assert bool(rows[~context.present].eq(0).all()), "absent rows are zeros"
        assert bool(rows[:, -block:, :, 0].eq(-1).all())
        assert bool(rows[:, -block:, :, 1].eq(-2).all())
        assert bool(context.present[:, -block:].all())
        for row, (anchor, position) in enumerate(zip(anchors.tolist(), positions.tolist(), strict=True)):
            places = context.positions[row]
            assert places[-block:].tolist() == list(range(position, position + block))
            here = context.present[row, :-block]
            tokens[row] = len(self.seen)
            finite[row] = anchor != 13
            if not self.remember:
                continue
            self.seen.append(
                Seen(
                    anchor,
                    position,
                    depth,
                    len(anchors),
                    places[:-block][here].clone(),
                    rows[row, :-block][here].clone(),
                )
            )
        return Proposal(tokens, torch.zeros(len(anchors), depth, VOCAB // 2**18), finite)

    def weight_bytes(self) -> int:
        return 0
