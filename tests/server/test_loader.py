"""What the operator says about the draft is what is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidedraft.server.loader import Loaded, load
from sidedraft.server.report import Silent
from sidedraft.settings import MIB, ServerSettings
from support.checkpoints import tiny_draft, tiny_target


@pytest.fixture
def speculator(tmp_path: Path) -> Path:
    """Full attention, and the causal flag at its default."""
    target = tiny_target(tmp_path / "target")
    flag = {"sliding_window_non_causal": False}
    return tiny_draft(tmp_path / "draft", "dflash", target=target, format="speculators", overrides=flag)


def loaded(draft: Path, *, vllm_compat: bool) -> Loaded:
    target = str(draft.parent / "target")
    settings = ServerSettings(
        draft=str(draft), target=target, kv_memory=4 * MIB, max_requests=4, vllm_compat=vllm_compat
    )
    return load(settings, Silent(), lambda: None)


def test_the_causal_flag_is_read_as_vllm_does_when_told_to(speculator: Path) -> None:
    ours, theirs = (loaded(speculator, vllm_compat=switch).draft for switch in (False, True))
    assert (set(ours.shape.causal), set(theirs.shape.causal)) == ({False}, {True})


def test_drafts_that_read_it_differently_share_no_prefix(speculator: Path) -> None:
    """Kept blocks are named by a chain that begins with the draft's identity."""
    ours, theirs = (loaded(speculator, vllm_compat=switch).draft.identity for switch in (False, True))
    assert ours != theirs
    assert loaded(speculator, vllm_compat=True).draft.identity == theirs
