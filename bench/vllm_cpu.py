"""vLLM on a CPU without drafts, with its own drafter, and with a draft server: same weights, same prompts.

SmolLM2-135M in float32 with the demo's dspark draft of 5 tokens. Three engines, each one thread on the first
core, live all the time and take turns, a run of every prompt each; the server has the last core for itself.
Every prompt has run once before, so that what is timed finds its prefix in the target's cache (all arms keep
every block). vLLM runs its second model runner in Triton's interpreter with greedy choices made in torch
(tests/support/triton_cpu): its steps are slower than a GPU's by far, and of the same size in all arms. vLLM's
own drafter is mended to norm every layer's context keys by their own weights, which its CPU kernel does not.

- tokens/s: all tokens of a run over its wall time, prompts included.
- accepted: draft tokens kept a step, of requests in their answer.
- step: from the start of a step of the target to the start of the next, median over steps in which every
  request of the batch was in its answer.
- remote / local: of the medians of neighbouring runs, median over pairs.

    python bench/vllm_cpu.py [--batches 1,4] [--prompts 4] [--tokens 48] [--repeats 5]
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sidedraft.targets import smollm2
from support.vllm_harness import Engine, Generation, Layout, started, vllm_python
from support.vllm_parity import PATIENT, Pair, demo_prompts, greedily, start_together, trained_dspark

ARMS = ("none", "local", "remote")


@contextlib.contextmanager
def pinned(core: int) -> Iterator[None]:
    """Processes that are started inside run on this core only."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {core})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass
class Runs:
    """Of one arm and batch size."""

    tokens: int = 0
    seconds: float = 0.0
    accepted: int = 0
    drafted_steps: int = 0
    steps: list[float] = field(default_factory=list)
    """Median step of each run, seconds."""

    def add(self, generations: list[Generation], seconds: float, steps: list[float]) -> None:
        self.tokens += sum(len(one.tokens) for one in generations)
        self.seconds += seconds
        self.accepted += sum(len(one.tokens) - len(one.steps) for one in generations)
        self.drafted_steps += sum(len(one.steps) - 1 for one in generations)
        self.steps.append(statistics.median(steps))


def full_steps(noted: list[dict[str, Any]], batch: int, depth: int) -> list[float]:
    """Seconds of the steps of a run in which `batch` requests, and no prompts, were computed."""
    return [
        after["begun"] - step["begun"]
        for step, after in itertools.pairwise(noted)
        if not step["new"] and step["requests"] == batch and step["tokens"] <= batch * (1 + depth)
    ]


def measure(
    engines: dict[str, Engine], prompts: list[list[int]], batch: int, depth: int, tokens: int, repeats: int
) -> dict[str, Runs]:
    """Every arm runs every batch of prompts once unmeasured, then `repeats` times in turn."""
    found = {arm: Runs() for arm in engines}
    groups = [prompts[at : at + batch] for at in range(0, len(prompts) - batch + 1, batch)]
    for turn in range(repeats + 1):
        for group in groups:
            order = list(engines)[turn % len(engines) :] + list(engines)[: turn % len(engines)]
            for arm in order:
                generations = engines[arm].generate(greedily(group, tokens), timeout=600)
                noted = engines[arm].call("support.vllm_steps:take")
                if turn:
                    steps = full_steps(noted, batch, depth)
                    found[arm].add(generations, engines[arm].generate_seconds, steps)
    return found


def report(batch: int, found: dict[str, Runs]) -> None:
    for arm, runs in found.items():
        print(
            f"{batch:5}  {arm:6}  {runs.tokens / runs.seconds:8.2f}  "
            f"{runs.accepted / max(1, runs.drafted_steps):8.2f}  {1e3 * statistics.median(runs.steps):8.1f}"
        )
    pairs = list(zip(found["remote"].steps, found["local"].steps, strict=True))
    ratios = sorted(remote / local for remote, local in pairs)
    print(
        f"       step, remote / local: {statistics.median(ratios):.3f} "
        f"({ratios[0]:.3f} to {ratios[-1]:.3f}, {len(ratios)} pairs)",
        flush=True,
    )


def engine_of(pair: Pair, arm: str, address: str) -> contextlib.AbstractContextManager[Engine]:
    options: dict[str, Any] = {"max_model_len": 768, "enable_prefix_caching": True}
    environ = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    if arm != "none":
        options["speculative_config"] = pair.speculation(remote=arm == "remote")
        options["speculative_config"]["disable_eagle_block_drop"] = True
    if arm == "remote":
        environ |= PATIENT | {"SIDEDRAFT_ADDRESS": address}
    return started(Layout.IN_PROCESS, pair.target, engine=options, environ=environ)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batches", default="1,4", help="(default: %(default)s)")
    parser.add_argument("--prompts", type=int, default=4, help="(default: %(default)s)")
    parser.add_argument("--tokens", type=int, default=48, help="a prompt (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=5, help="(default: %(default)s)")
    options = parser.parse_args()
    if vllm_python() is None:
        print("no vLLM: `make vllm` makes .venv/vllm", file=sys.stderr)
        return 2
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory(prefix="bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        pair = trained_dspark(smollm2.obtain(), folder)
        prompts = demo_prompts("held-out", options.prompts, pair.target)
        address = f"ipc://{folder}/draft.sock"
        with pinned(cores[-1]):
            server = stack.enter_context(pair.server(folder / "server", address))
        with pinned(cores[0]):
            server.wait_ready()
            started_ones = start_together(stack, [engine_of(pair, arm, address) for arm in ARMS])
        engines = dict(zip(ARMS, started_ones, strict=True))
        for engine in started_ones:
            engine.call("support.vllm_steps:watch")
        engines["local"].call("support.vllm_drafts:norm_each_layer")
        engines["remote"].call("support.vllm_drafts:wait_for_server")
        print(f"engines on core {cores[0]}, server on core {cores[-1]}, depth {pair.depth}")
        print("batch  arm     tokens/s  accepted  step, ms")
        for batch in map(int, options.batches.split(",")):
            found = measure(engines, prompts, batch, pair.depth, options.tokens, options.repeats)
            report(batch, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
