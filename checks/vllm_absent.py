"""A draft server that is not there costs nothing: 100 steps of four requests, synchronous and forced
asynchronous scheduling, SmolLM2 in float32; or a tiny target, whose steps are so short that all costs show.

Bars: no draft token is scheduled after step 2; tokens/s at least 0.97 of an engine without speculation, the
median of interleaved pairs. Both engines live all the time and take turns.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sidedraft.targets import smollm2
from support.vllm_harness import Engine, Layout, started, vllm_python
from support.vllm_parity import (
    Pair,
    demo_prompts,
    greedily,
    random_dflash,
    random_prompts,
    start_together,
    trained_dspark,
)

STEPS, BATCH = 100, 4
BAR = 0.97


def speed(engine: Engine, prompts: list[list[int]]) -> float:
    """Tokens/s of one run of all prompts at once: a step for the prompts and `STEPS` for the others."""
    engine.generate(greedily(prompts, STEPS + 1), timeout=600)
    return len(prompts) * (STEPS + 1) / engine.generate_seconds


def check(pair: Pair, prompts: list[list[int]], patches: tuple[str, ...], pairs: int, folder: Path) -> bool:
    environ = {"SIDEDRAFT_ADDRESS": f"ipc://{folder}/nobody.sock"}
    remote = {"speculative_config": pair.speculation(remote=True)}
    engines = (
        started(Layout.IN_PROCESS, pair.target, patches=patches),
        started(Layout.IN_PROCESS, pair.target, patches=patches, engine=remote, environ=environ),
    )
    with contextlib.ExitStack() as stack:
        plain, absent = start_together(stack, engines)
        absent.call("support.vllm_steps:watch")
        for engine in (plain, absent):
            speed(engine, prompts)
        first = absent.call("support.vllm_steps:take")
        ratios = []
        for turn in range(pairs):
            arms = (plain, absent) if turn % 2 else (absent, plain)
            speeds = {id(engine): speed(engine, prompts) for engine in arms}
            ratios.append(speeds[id(absent)] / speeds[id(plain)])
            print(f"  {speeds[id(plain)]:.2f} and {speeds[id(absent)]:.2f} tokens/s", flush=True)
        later = absent.call("support.vllm_steps:take")
    # The very first step there is, and the second, may come before the scheduler was told.
    fillers = sum(step["drafts"] for step in (first + later)[2:])
    median = statistics.median(ratios)
    mode = "asynchronous" if "async" in patches else "synchronous"
    print(
        f"{mode}: {fillers} fillers in {len(first + later)} steps "
        f"(bar: 0); {median:.3f} of the speed without speculation, {min(ratios):.3f} to {max(ratios):.3f} "
        f"(bar: {BAR}; median of {pairs} interleaved pairs of {STEPS} steps)"
    )
    return fillers == 0 and len(first) > STEPS and median >= BAR


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=5, help="of each mode (default: %(default)s)")
    parser.add_argument("--mode", choices=["synchronous", "async"], help="only this one")
    parser.add_argument("--target", choices=["smollm2", "tiny"], default="smollm2", help="(%(default)s)")
    options = parser.parse_args()
    if vllm_python() is None:
        print("no vLLM: `make vllm` makes .venv/vllm", file=sys.stderr)
        return 2
    modes = {"synchronous": ("greedy",), "async": ("greedy", "async")}
    with tempfile.TemporaryDirectory(prefix="absent-") as name:
        folder = Path(name)
        if options.target == "tiny":
            pair, prompts = random_dflash(folder), random_prompts(BATCH, 30, 24)
        else:
            pair = trained_dspark(smollm2.obtain(), folder)
            prompts = demo_prompts("unrelated", BATCH, pair.target)
        wanted = [options.mode] if options.mode else list(modes)
        held = [check(pair, prompts, modes[mode], options.pairs, folder) for mode in wanted]
    return int(not all(held))


if __name__ == "__main__":
    sys.exit(main())
