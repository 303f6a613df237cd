"""Every family and variant against what the public implementations computed (tools/make_golden.py)."""

from __future__ import annotations

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from sidedraft.drafts import Draft, Proposal, load_draft, pack
from support.dense_context import DenseContext
from support.golden import TARGET, TOLERANCE, GoldenCase, golden_case, golden_names


def propose_every_step(draft: Draft, case: GoldenCase) -> list[Proposal]:
    """As a request goes: rows come in pieces, and every proposal sees all of them."""
    rows, found = torch.empty(0), []
    for step in case.steps:
        new = draft.context_rows(step.aux, torch.arange(step.first, step.position))
        rows = new if step.first == 0 else torch.cat((rows, new))
        anchor = torch.tensor([step.position])
        depth = len(step.tokens)
        context = DenseContext(
            draft.shape, [rows], [torch.arange(step.position)], anchor, draft.shape.query_rows(depth)
        )
        found.append(draft.propose(torch.tensor([step.anchor]), anchor, depth, context))
    return found


def assert_equal(case: GoldenCase, proposals: list[Proposal]) -> None:
    for step, proposal in zip(case.steps, proposals, strict=True):
        assert proposal.tokens[0].tolist() == step.tokens.tolist()
        torch.testing.assert_close(proposal.logits[0], step.logits, atol=TOLERANCE, rtol=0)
        assert proposal.finite.tolist() == [True]
        if step.confidence is None:
            assert proposal.confidence is None
        else:
            assert proposal.confidence is not None
            torch.testing.assert_close(proposal.confidence[0], step.confidence, atol=TOLERANCE, rtol=0)


def test_the_cases_cover_what_is_served() -> None:
    assert set(golden_names()) >= {
        "dflash_full",
        "dflash_sliding",
        "dflash_sliding_causal",
        "dflash_full_causal",
        "dflash_scaled",
        "dflash_reduced",
        "dspark_anchor",
        "dspark_bonus",
        "dspark_reduced",
    }


@pytest.mark.parametrize("name", golden_names())
def test_logits_and_tokens_equal_the_reference(name: str) -> None:
    case = golden_case(name)
    assert_equal(case, propose_every_step(load_draft(case.draft, TARGET), case))


@pytest.mark.parametrize("name", golden_names())
def test_a_packed_draft_equals_the_reference_without_its_target(name: str, tmp_path) -> None:
    case = golden_case(name)
    pack(case.draft, TARGET, tmp_path / "bundle")
    assert_equal(case, propose_every_step(load_draft(tmp_path / "bundle"), case))


@pytest.mark.parametrize("name", ["dflash_reduced", "dspark_reduced"])
def test_a_reduced_head_that_is_not_shipped_comes_from_the_targets_rows(name: str, tmp_path) -> None:
    case = golden_case(name)
    folder = shutil.copytree(case.draft, tmp_path / "draft")
    tensors = load_file(folder / "model.safetensors")
    del tensors["lm_head.weight"]
    save_file(tensors, folder / "model.safetensors")
    assert_equal(case, propose_every_step(load_draft(folder, TARGET), case))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("dflash_sliding", {"is_causal": True}),
        ("dflash_sliding_causal", {"is_causal": False}),
        ("dflash_sliding_causal", {"sliding_window": 6}),
        ("dflash_full_causal", {"is_causal": False}),
        ("dflash_full", {"rms_norm_eps": 1e-2}),
        ("dflash_scaled", {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}}),
        ("dspark_anchor", {"sample_from_anchor": False, "speculators_config": None, "block_size": 7}),
    ],
)
def test_the_reference_tells_variants_apart(name: str, change: dict[str, object], tmp_path) -> None:
    """The cases are no proof of a setting unless they fail without it."""
    case = golden_case(name)
    folder = shutil.copytree(case.draft, tmp_path / "draft")
    config = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(AssertionError):
        assert_equal(case, propose_every_step(load_draft(folder, TARGET), case))


def test_absolute_positions_do_not_matter_far_from_zero() -> None:
    """Plain rotary embedding sees differences only; at 128k the angles still hold in fp32."""
    case = golden_case("dflash_full")
    draft = load_draft(case.draft, TARGET)
    step = case.steps[0]
    found = []
    for shift in (0, 131_000):
        at = torch.arange(len(step.aux)) + shift
        anchor = torch.tensor([step.position + shift])
        rows = draft.context_rows(step.aux, at)
        context = DenseContext(draft.shape, [rows], [at], anchor, draft.shape.query_rows(5))
        found.append(draft.propose(torch.tensor([step.anchor]), anchor, 5, context).logits)
    torch.testing.assert_close(found[0], found[1], atol=2e-2, rtol=0)
