"""Drafts from a server cost vLLM's prefix cache nothing: prompts with common beginnings through one engine
without speculation, one that drafts itself, and one with a draft server, the same weights in the last two.

Bars: with a server as many prompt tokens are found in the cache as without speculation, of as many asked for;
and the server restores rows for all that were found, which never reach it. vLLM's own drafting, which gives
up the last block of each prefix it finds, is printed beside.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.agreeing import agreeing_pair
from support.vllm_harness import Engine, Layout, started, vllm_python
from support.vllm_parity import PATIENT, greedily, packed, random_prompts, start_together

VOCAB = 97
BLOCK = 32
QUERIES, HITS = "vllm:prefix_cache_queries", "vllm:prefix_cache_hits"
TOKENS = 12


@dataclass(frozen=True)
class Found:
    """Prompt tokens of the measured requests."""

    asked: int
    hits: int
    outputs: list[list[int]]


def prompts(families: int, members: int) -> tuple[list[list[int]], list[list[int]]]:
    """The first of each family, and the others: a common beginning, of no whole number of blocks, and an end
    of their own."""
    starts = random_prompts(families, 5 * BLOCK + 7, VOCAB, seed=1)
    ends = random_prompts(families * members, 20, VOCAB, seed=2)
    whole = [start + ends[at * members + one] for at, start in enumerate(starts) for one in range(members)]
    first = [one for at, one in enumerate(whole) if at % members == 0]
    return first, [one for at, one in enumerate(whole) if at % members]


def run(engine: Engine, first: list[list[int]], others: list[list[int]]) -> Found:
    """The others once the first ones are known, in fours: the cache holds what they share."""
    engine.generate(greedily(first, TOKENS), timeout=600)
    before = engine.metrics()
    outputs = [
        one.tokens
        for at in range(0, len(others), 4)
        for one in engine.generate(greedily(others[at : at + 4], TOKENS), timeout=600)
    ]
    after = engine.metrics()
    asked, hits = (int(after[name] - before[name]) for name in (QUERIES, HITS))
    return Found(asked, hits, outputs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--families", type=int, default=4, help="common beginnings (default: %(default)s)")
    parser.add_argument("--members", type=int, default=5, help="prompts of each (default: %(default)s)")
    options = parser.parse_args()
    if vllm_python() is None:
        print("no vLLM: `make vllm` makes .venv/vllm", file=sys.stderr)
        return 2
    first, others = prompts(options.families, options.members)
    with tempfile.TemporaryDirectory(prefix="prefix-cache-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        target, draft = agreeing_pair(folder, hidden=128)
        pair, address = packed(draft, target, folder), f"ipc://{folder}/draft.sock"
        server = stack.enter_context(pair.server(folder / "server", address))
        server.wait_ready()

        def engine(remote: bool | None) -> contextlib.AbstractContextManager[Engine]:
            arguments: dict[str, Any] = {"enable_prefix_caching": True, "block_size": BLOCK}
            if remote is not None:
                arguments["speculative_config"] = pair.speculation(remote=remote)
            environ = PATIENT | {"SIDEDRAFT_ADDRESS": address} if remote else {}
            return started(Layout.IN_PROCESS, target, engine=arguments, environ=environ)

        arms = dict.fromkeys(("none", "local", "remote"))
        engines = start_together(stack, [engine(None), engine(False), engine(True)])
        engines[2].call("support.vllm_drafts:wait_for_server")
        found = dict(zip(arms, (run(one, first, others) for one in engines), strict=True))

        def restored() -> int:
            return int(server.get("/v1/status")[1]["counts"]["engine"]["rows_restored"])

        rows = restored()
    bar = found["none"].hits
    for arm, one in found.items():
        print(f"{arm:>6}: {one.hits:,} of {one.asked:,} prompt tokens found ({one.hits / one.asked:.3f})")
    remote = found["remote"]
    print(
        f"bar: remote as none, {bar:,} of {found['none'].asked:,}; {len(others)} prompts, blocks of {BLOCK}"
    )
    print(f"rows restored from the server's index: {rows:,} (bar: at least {remote.hits:,}, those found)")
    same = remote.outputs == found["none"].outputs
    print(f"outputs with a server {'are' if same else 'are not'} those without speculation")
    equal = (remote.hits, remote.asked) == (bar, found["none"].asked)
    return int(not (equal and same and bar > 0 and rows >= remote.hits))


if __name__ == "__main__":
    sys.exit(main())
