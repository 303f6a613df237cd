"""What a draft does with batches, holes, bad values and depths, whatever its weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from sidedraft.drafts import Draft, Proposal, load_draft
from support.checkpoints import tiny_draft, tiny_target
from support.dense_context import DenseContext

VARIANTS = {
    "dflash": ("dflash", {}),
    "dflash-windows": ("dflash", {"windows": (6, None)}),
    "dflash-bidirectional-window": ("dflash", {"windows": (3, None), "causal": False}),
    "dflash-reduced": ("dflash", {"draft_vocab": 20}),
    "dspark": ("dspark", {}),
    "dspark-bonus": ("dspark", {"layout": "bonus"}),
    "dspark-reduced": ("dspark", {"draft_vocab": 20}),
    "dspark-no-markov": ("dspark", {"format": "speculators", "markov_rank": 0}),
}


@pytest.fixture(scope="module", params=VARIANTS)
def draft(request, tmp_path_factory) -> Draft:
    family, options = VARIANTS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    target = tiny_target(folder / "target")
    path = tiny_draft(folder / "draft", family, target=target, **options)
    return load_draft(path, target)


def rows_of(draft: Draft, count: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    aux = torch.randn(count, draft.shape.row_width, generator=generator)
    return draft.context_rows(aux, torch.arange(count))


def propose(
    draft: Draft,
    rows: list[Tensor],
    positions: list[Tensor],
    anchors: list[int],
    ends: list[int],
    depth: int = 4,
) -> Proposal:
    at = torch.tensor(ends)
    context = DenseContext(draft.shape, rows, positions, at, draft.shape.query_rows(depth))
    return draft.propose(torch.tensor(anchors), at, depth, context)


def test_requests_of_a_batch_do_not_meet(draft: Draft) -> None:
    """Different lengths, so different padding: each row as if it were alone."""
    lengths, anchors = [5, 17, 1, 0], [3, 90, 41, 7]
    rows = [rows_of(draft, n, seed) for seed, n in enumerate(lengths)]
    positions = [torch.arange(n) for n in lengths]
    together = propose(draft, rows, positions, anchors, lengths)
    for b in range(4):
        alone = propose(draft, [rows[b]], [positions[b]], [anchors[b]], [lengths[b]])
        torch.testing.assert_close(together.logits[b], alone.logits[0], atol=2e-4, rtol=0)
        assert together.tokens[b].tolist() == alone.tokens[0].tolist()


def test_a_hole_is_as_if_the_row_were_not_there(draft: Draft) -> None:
    rows, keep = rows_of(draft, 12, 1), [0, 1, 2, 5, 6, 11]
    holes = DenseContext(
        draft.shape, [rows], [torch.arange(12)], torch.tensor([12]), draft.shape.query_rows(4)
    )
    gone = [i for i in range(12) if i not in keep]
    holes.present[0, gone] = False
    holes.rows[0, gone] = 0.0
    holes.positions[0, gone] = 12
    found = draft.propose(torch.tensor([3]), torch.tensor([12]), 4, holes)
    dense = propose(draft, [rows[keep]], [torch.tensor(keep)], [3], [12])
    torch.testing.assert_close(found.logits, dense.logits, atol=2e-4, rtol=0)


def test_columns_may_stand_in_any_order(draft: Draft) -> None:
    rows, order = rows_of(draft, 9, 2), torch.tensor([4, 0, 8, 2, 6, 1, 7, 3, 5])
    one = propose(draft, [rows], [torch.arange(9)], [3], [9])
    other = propose(draft, [rows[order]], [order], [3], [9])
    torch.testing.assert_close(one.logits, other.logits, atol=2e-4, rtol=0)


def test_context_rows_depend_on_their_own_row_only(draft: Draft) -> None:
    aux = torch.randn(7, draft.shape.row_width)
    whole = draft.context_rows(aux, torch.arange(7))
    shape = draft.shape
    assert whole.shape == (7, shape.layers, 2, shape.kv_heads, shape.head_dim)
    parts = [draft.context_rows(aux[i : i + 1], torch.tensor([i])) for i in range(7)]
    torch.testing.assert_close(torch.cat(parts), whole, atol=2e-5, rtol=0)
    assert len(draft.context_rows(aux[:0], torch.arange(0))) == 0


@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
def test_a_request_with_bad_rows_is_told_and_alone_in_it(draft: Draft, poison: float) -> None:
    good = rows_of(draft, 6, 3)
    bad = good.clone()
    bad[2, 0, 1] = poison
    at = [torch.arange(6)] * 2
    found = propose(draft, [bad, good], at, [3, 3], [6, 6])
    alone = propose(draft, [good], at[:1], [3], [6])
    assert found.finite.tolist() == [False, True]
    assert found.tokens[1].tolist() == alone.tokens[0].tolist()
    assert bool(((found.tokens >= 0) & (found.tokens < 97)).all()), "even then ids are valid"


def test_tokens_are_the_greatest_logits_in_target_ids(draft: Draft) -> None:
    found = propose(draft, [rows_of(draft, 8, 4)], [torch.arange(8)], [3], [8])
    ids = getattr(draft, "vocabulary").to_target(found.logits.argmax(-1))  # noqa: B009 - not of the protocol
    assert found.tokens.equal(ids)
    assert found.tokens.dtype is torch.int64
    assert found.logits.shape == (1, 4, draft.shape.draft_vocab_size)
    assert found.finite.dtype is torch.bool
    assert (found.confidence is not None) is draft.shape.has_confidence
    if found.confidence is not None:
        assert found.confidence.shape == (1, 4)
        assert bool(((found.confidence > 0) & (found.confidence < 1)).all())


def test_every_smaller_depth_is_served(draft: Draft) -> None:
    rows = rows_of(draft, 8, 4)
    for depth in range(1, draft.shape.max_depth + 1):
        assert propose(draft, [rows], [torch.arange(8)], [3], [8], depth).tokens.shape == (1, depth)
    for depth in (0, draft.shape.max_depth + 1):
        with pytest.raises(ValueError, match=f"depth: {depth} is not allowed; expected 1 to 4"):
            propose(draft, [rows], [torch.arange(8)], [3], [8], depth)


def test_no_shape_depends_on_data(draft: Draft) -> None:
    """Fake tensors have shapes and no values: whatever looked at a value would raise."""
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    shape = draft.shape
    rows, at = torch.zeros(3, 8, shape.layers, 2, shape.kv_heads, shape.head_dim), torch.arange(8)
    context = DenseContext(shape, list(rows), [at] * 3, torch.tensor([8, 8, 8]), shape.query_rows(4))
    with mode:
        for name in ("rows", "positions", "present"):
            setattr(context, name, mode.from_tensor(getattr(context, name)))
        anchors, ends = (mode.from_tensor(torch.tensor([1, 2, 3])) for _ in range(2))
        found = draft.propose(anchors, ends, 4, context)
        new = draft.context_rows(mode.from_tensor(torch.zeros(5, shape.row_width)), mode.from_tensor(at[:5]))
    assert found.tokens.shape == (3, 4)
    assert new.shape == (5, *rows.shape[2:])


def test_the_first_context_row_matters(draft: Draft) -> None:
    """So that the equalities above are not those of a context that nobody reads."""
    rows = rows_of(draft, 5, 6)
    one = propose(draft, [rows], [torch.arange(5)], [3], [5])
    other = propose(draft, [rows[1:]], [torch.arange(1, 5)], [3], [5])
    assert (one.logits - other.logits).abs().max() > 1e-2


def test_the_seen_distance_ends_at_the_window(tmp_path: Path) -> None:
    """Rows beyond every layer's window cannot be told from absent ones."""
    target = tiny_target(tmp_path / "target")
    folder = tiny_draft(tmp_path / "draft", "dflash", target=target, windows=(5, 3))
    draft = load_draft(folder, target)
    assert draft.shape.window == 5
    rows = rows_of(draft, 20, 7)
    whole = propose(draft, [rows], [torch.arange(20)], [3], [20])
    near = propose(draft, [rows[16:]], [torch.arange(16, 20)], [3], [20])
    torch.testing.assert_close(whole.logits, near.logits, atol=2e-4, rtol=0)
    nearer = propose(draft, [rows[17:]], [torch.arange(17, 20)], [3], [20])
    assert (whole.logits - nearer.logits).abs().max() > 1e-3


@pytest.mark.parametrize("family", ["dflash", "dspark"])
def test_logit_scale_scales_head_and_bias_alike(family: str, tmp_path: Path) -> None:
    target = tiny_target(tmp_path / "target")
    plain, scaled = (
        load_draft(
            tiny_draft(tmp_path / str(scale), family, target=target, overrides={"logit_scale": scale}), target
        )
        for scale in (1.0, 2.5)
    )
    rows, at = [rows_of(plain, 8, 4)], [torch.arange(8)]
    one, other = propose(plain, rows, at, [3], [8]), propose(scaled, rows, at, [3], [8])
    torch.testing.assert_close(other.logits, one.logits * 2.5, atol=1e-3, rtol=0)
    assert other.tokens.equal(one.tokens)
