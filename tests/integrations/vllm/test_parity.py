"""vLLM's own dflash and dspark drafting and ours, with the same weights in float32: the same drafts at every
step, and the same accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.vllm_harness import Request, needs_vllm, smollm2
from support.vllm_parity import (
    Pair,
    Parity,
    compare,
    demo_prompts,
    greedily,
    random_dflash,
    random_prompts,
    run_both,
    trained_dspark,
)

pytestmark = [needs_vllm, pytest.mark.slow, pytest.mark.timeout(900)]


def parity(pair: Pair, batch: list[Request], folder: Path) -> Parity:
    """Prompts that come in chunks, in one batch with requests that decode already."""
    options = {"enable_prefix_caching": False, "max_model_len": 768}
    local, remote = run_both(pair, [batch], folder, options)
    assert remote.speculator == "RemoteSpeculator"
    assert local.speculator == {"dspark": "DSparkSpeculator", "dflash": "DFlashSpeculator"}[pair.method]
    return compare(local, remote)


def test_a_trained_dspark_draft(tmp_path: Path) -> None:
    pair = trained_dspark(smollm2(), tmp_path)
    prompts = demo_prompts("held-out", 3, pair.target) + demo_prompts("unrelated", 1, pair.target)
    found = parity(pair, greedily(prompts, 32), tmp_path)
    assert found.ok, found
    assert found.accepted > found.blocks  # an unrelated prompt, in which nothing is accepted, has most blocks


def test_a_random_dflash_draft(tmp_path: Path) -> None:
    pair = random_dflash(tmp_path)
    found = parity(pair, greedily(random_prompts(4, 120, 24), 40), tmp_path)
    assert found.ok, found
    assert found.median_gap > 0.1
    assert found.accepted > 0
