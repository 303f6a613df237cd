"""A speculators checkpoint whose causal flag has its default: vLLM 0.32 makes full attention causal for it,
which was trained bidirectional. Its own drafting and ours agree where the server is told to do so too."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from support.checkpoints import tiny_draft, tiny_target
from support.vllm_harness import needs_vllm
from support.vllm_parity import Pair, compare, greedily, random_prompts, run, run_both

# Three engines, two of them at once.
pytestmark = [needs_vllm, pytest.mark.long, pytest.mark.timeout(900)]

VOCAB, DEPTH = 24, 4


def speculator(folder: Path) -> Pair:
    """A random dflash draft in the speculators format, beside whose weights lie the target's own."""
    target = tiny_target(folder / "target", hidden=128, vocab=VOCAB, seed=3)
    draft = tiny_draft(
        folder / "draft",
        "dflash",
        target=target,
        head_dim=32,
        max_depth=DEPTH,
        format="speculators",
        overrides={"sliding_window_non_causal": False},
    )
    weights = load_file(draft / "model.safetensors")
    weights["norm.weight"] *= 2.0  # and so the gaps between logits
    embedding = load_file(target / "model.safetensors")["model.embed_tokens.weight"]
    weights |= {"embed_tokens.weight": embedding, "lm_head.weight": embedding.clone()}
    save_file(weights, draft / "model.safetensors", metadata={"format": "pt"})
    (folder / "config").mkdir()
    shutil.copy(draft / "config.json", folder / "config")
    return Pair("dflash", target, draft, folder / "config", DEPTH)


def test_the_servers_switch_makes_it_what_vllm_drafts_itself(tmp_path: Path) -> None:
    pair = speculator(tmp_path)
    batches = [greedily(random_prompts(4, 120, VOCAB), 40)]
    options = {"enable_prefix_caching": False, "max_model_len": 768}
    local, remote = run_both(pair, batches, tmp_path, options, "--vllm-compat")
    found = compare(local, remote)
    assert found.ok, found
    assert found.median_gap > 0.1
    assert found.accepted > 0

    address = f"ipc://{tmp_path}/other.sock"
    with pair.server(tmp_path / "other", address) as server:
        server.wait_ready()
        without = run(pair, batches, address=address, engine=options)
    other = compare(local, without)
    assert len(other.differences) > other.blocks // 10, other
