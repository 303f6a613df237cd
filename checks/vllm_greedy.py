"""Greedy output of vLLM with drafts from a server is its output without speculation: 50 prompts of 48 tokens,
SmolLM2 in float32.

Where they differ, the target's two best logits must be within 1e-3, and at most 2 % of the prompts may. The
prompts are of all the demo's kinds, so that drafts are accepted often, seldom and never; eight run at once.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sidedraft.integrations.transformers.compare import judge
from sidedraft.targets import smollm2
from sidedraft.targets.tapped import TappedTarget
from support.vllm_harness import Layout, started, vllm_python
from support.vllm_parity import PATIENT, demo_prompts, greedily, trained_dspark

TOKENS = 48
UNRELATED = 8
DRAFTED, ACCEPTED = "vllm:spec_decode_num_draft_tokens", "vllm:spec_decode_num_accepted_tokens"


def generate(
    target: Path, prompts: list[list[int]], engine: dict[str, Any], environ: dict[str, str]
) -> tuple[list[list[int]], dict[str, Any]]:
    options = {"max_model_len": 768, **engine}
    with started(Layout.IN_PROCESS, target, engine=options, environ=environ) as running:
        found = []
        for at in range(0, len(prompts), 8):
            found += running.generate(greedily(prompts[at : at + 8], TOKENS), timeout=600)
        return [one.tokens for one in found], running.metrics()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=50, help="(default: %(default)s)")
    options = parser.parse_args()
    if vllm_python() is None:
        print("no vLLM: `make vllm` makes .venv/vllm", file=sys.stderr)
        return 2
    target = smollm2.obtain()
    unrelated = demo_prompts("unrelated", min(UNRELATED, options.prompts // 3), target)
    rest = options.prompts - len(unrelated)
    prompts = unrelated + demo_prompts("held-out", rest - rest // 2, target)
    prompts += demo_prompts("trained-on", rest // 2, target)
    with tempfile.TemporaryDirectory(prefix="greedy-") as name:
        folder = Path(name)
        pair = trained_dspark(target, folder)
        address = f"ipc://{folder}/draft.sock"
        speculation = {"speculative_config": pair.speculation(remote=True)}
        environ = PATIENT | {"SIDEDRAFT_ADDRESS": address}
        with pair.server(folder / "server", address) as server, ThreadPoolExecutor(2) as threads:
            server.wait_ready()
            arms = [
                threads.submit(generate, target, prompts, {}, {}),
                threads.submit(generate, target, prompts, speculation, environ),
            ]
            (plain, _), (drafted, metrics) = [arm.result() for arm in arms]
    verdict = judge(TappedTarget.load(target, (), threads=1), prompts, plain, drafted)
    print(f"{metrics[DRAFTED]:.0f} tokens drafted, {metrics[ACCEPTED]:.0f} accepted")
    print(f"{verdict}\nbar: only ties, in at most 2 % of {len(prompts)} prompts of {TOKENS} tokens")
    return int(not verdict.ok or metrics[ACCEPTED] < TOKENS)


if __name__ == "__main__":
    sys.exit(main())
