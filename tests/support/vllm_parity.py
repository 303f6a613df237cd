"""vLLM's own drafting beside ours, with the same draft weights: models, runs, and their comparison."""

from __future__ import annotations

import contextlib
import json
import shutil
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from sidedraft.drafts import pack
from sidedraft.integrations.transformers.compare import TIE_GAP, TIE_SHARE
from support.checkpoints import tiny_draft, tiny_target
from support.serve_process import ServeProcess
from support.vllm_harness import ROOT, Engine, Generation, Layout, Request, started

PATIENT = {"SIDEDRAFT_DEADLINE_MS": "60000"}
"""A busy machine must not cost a draft where drafts are compared."""
DEMO_DRAFT = ROOT / "demo" / "draft"


@dataclass(frozen=True)
class Pair:
    """A target and a draft for it, packed; and the draft folder of the verifier's side."""

    method: str
    target: Path
    bundle: Path
    config: Path
    depth: int

    def speculation(self, *, remote: bool) -> dict[str, Any]:
        model = self.config if remote else self.bundle
        return {"method": self.method, "model": str(model), "num_speculative_tokens": self.depth}

    def server(self, folder: Path, address: str, *flags: str) -> ServeProcess:
        """`sidedraft serve` of the bundle, in float32 on one thread."""
        folder.mkdir(parents=True, exist_ok=True)
        words = ["--bundle", str(self.bundle), "--dtype", "float32", "--bind", address]
        words += ["--http", "127.0.0.1:0", "--threads", "1", "--kv-memory", "128MiB"]
        return ServeProcess(folder, [*words, *flags])


def trained_dspark(target: Path, folder: Path) -> Pair:
    """The demo's draft; `target` is SmolLM2."""
    return packed(DEMO_DRAFT, target, folder)


def random_dflash(folder: Path) -> Pair:
    """A random target of so few tokens that a random draft is right now and then."""
    target = tiny_target(folder / "target", hidden=128, vocab=24, seed=3)
    draft = tiny_draft(folder / "draft", "dflash", target=target, head_dim=32, max_depth=4)
    weights = load_file(draft / "model.safetensors")
    weights["norm.weight"] *= 2.0  # and so the gaps between logits
    save_file(weights, draft / "model.safetensors", metadata={"format": "pt"})
    return packed(draft, target, folder)


def packed(draft: Path, target: Path, folder: Path) -> Pair:
    """Both ends' folders of a draft, made below `folder`."""
    bundle, config = folder / "bundle", folder / "config"
    made = pack(draft, target, bundle)
    config.mkdir()
    shutil.copy(bundle / "config.json", config)
    return Pair(made.family, target, bundle, config, made.max_depth)


@dataclass(frozen=True)
class Arm:
    """What one way of drafting did."""

    speculator: str
    generations: list[Generation]
    blocks: dict[tuple[int, int], dict[str, Any]]
    """Drafts by request and position of the anchor."""


def run(
    pair: Pair, batches: Sequence[Sequence[Request]], *, address: str | None, engine: dict[str, Any]
) -> Arm:
    """One engine over all batches of requests, one after the other; without an address it drafts itself."""
    remote = address is not None
    environ = PATIENT | {"SIDEDRAFT_ADDRESS": str(address)} if remote else {}
    options = {"speculative_config": pair.speculation(remote=remote), **engine}
    with started(Layout.IN_PROCESS, pair.target, engine=options, environ=environ) as running:
        if remote:
            running.call("support.vllm_drafts:wait_for_server")
        else:
            running.call("support.vllm_drafts:norm_each_layer")
        # The scheduler hears by the first step that a server is there.
        running.generate(greedily([batches[0][0].prompt[:8]], 8))  # type: ignore[list-item]
        name = running.call("support.vllm_drafts:record")
        generations = [one for batch in batches for one in running.generate(batch)]
        blocks = running.call("support.vllm_drafts:recorded")
    found = {(one["request"] - 1, one["end"]): one for one in blocks}  # the first one was not recorded
    return Arm(name, generations, found)


def start_together(
    stack: contextlib.ExitStack, engines: Sequence[contextlib.AbstractContextManager[Engine]]
) -> list[Engine]:
    """Enter all at the same time; the stack leaves them."""
    with ThreadPoolExecutor(len(engines)) as threads:
        return list(threads.map(stack.enter_context, engines))


def run_both(
    pair: Pair, batches: Sequence[Sequence[Request]], folder: Path, engine: dict[str, Any], *flags: str
) -> tuple[Arm, Arm]:
    """The local arm and the remote one with its server, at the same time; `flags` are the server's."""
    address = f"ipc://{folder}/draft.sock"
    with pair.server(folder / "server", address, *flags) as server, ThreadPoolExecutor(2) as threads:
        server.wait_ready()
        local = threads.submit(run, pair, batches, address=None, engine=engine)
        remote = threads.submit(run, pair, batches, address=address, engine=engine)
        return local.result(), remote.result()


@dataclass(frozen=True)
class Parity:
    """Drafts of two arms at the steps that both took."""

    blocks: int
    tokens: int
    accepted: int
    """Draft tokens that the target kept, of the local arm."""
    median_gap: float
    ties: int
    """Blocks that first differ where the two best logits are equal to float32's precision."""
    differences: list[str]
    """All others; and requests without a tie whose steps or tokens differ."""

    @property
    def ok(self) -> bool:
        return self.blocks > 0 and not self.differences and self.ties <= max(1, TIE_SHARE * self.blocks)

    def __str__(self) -> str:
        lines = [
            f"{self.blocks} drafts, {self.tokens} tokens, {self.accepted} accepted; {self.ties} ties, "
            f"{len(self.differences)} differences; median gap of the two best logits {self.median_gap:.3g}"
        ]
        return "\n".join(lines + self.differences[:10])


def compare(local: Arm, remote: Arm) -> Parity:
    differences, tied = [], set()
    ties = 0
    for place in sorted(local.blocks.keys() & remote.blocks.keys()):
        ours, theirs = remote.blocks[place], local.blocks[place]
        wrong = [
            (at, gap)
            for at, (one, other, gap) in enumerate(
                zip(ours["tokens"], theirs["tokens"], theirs["gaps"], strict=True)
            )
            if one != other
        ]
        if wrong and wrong[0][1] < TIE_GAP:
            ties += 1
            tied.add(place[0])
        elif wrong:
            differences.append(
                f"request {place[0]}, position {place[1]}, anchor {theirs['anchor']} / {ours['anchor']}: "
                f"{theirs['tokens']} became {ours['tokens']} (gap {wrong[0][1]:.2g})"
            )
    for request, (one, other) in enumerate(zip(local.generations, remote.generations, strict=True)):
        if request not in tied and (one.steps, one.tokens) != (other.steps, other.tokens):
            differences.append(f"request {request}: steps {one.steps} became {other.steps}")
    if any(place[0] not in tied for place in local.blocks.keys() ^ remote.blocks.keys()):
        differences.append("the arms drafted at different positions")
    gaps = [gap for block in local.blocks.values() for gap in block["gaps"]]
    return Parity(
        blocks=len(local.blocks),
        tokens=len(gaps),
        accepted=sum(len(one.tokens) - len(one.steps) for one in local.generations),
        median_gap=statistics.median(gaps) if gaps else 0.0,
        ties=ties,
        differences=differences,
    )


def demo_prompts(kind: str, count: int, target: Path) -> list[list[int]]:
    """Token ids of the first prompts of a kind: `held-out`, `trained-on` or `unrelated`."""
    from sidedraft.targets.text import text_encoder

    found = json.loads((ROOT / "demo" / "prompts" / f"{kind}.json").read_text())
    encode = text_encoder(target)
    return [encode(found["prefix"] + text + found["suffix"]) for text in found["prompts"][:count]]


def random_prompts(count: int, length: int, vocab: int, seed: int = 0) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [
        torch.randint(3, vocab - 1, (length + 9 * one,), generator=generator).tolist() for one in range(count)
    ]


def greedily(prompts: Sequence[Sequence[int]], tokens: int) -> list[Request]:
    params = {"temperature": 0, "max_tokens": tokens, "ignore_eos": True}
    return [Request(prompt, params) for prompt in prompts]
