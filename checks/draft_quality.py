"""The shipped draft: at least 2.7 tokens a step (K = 5) on held-out prompts, more than n-gram lookup.

Measured in a real loop: a server with the shipped draft, the reference verifier, every held-out prompt. The
n-gram figure is of the same outputs. The weights take at most 26 MB.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from sidedraft.cli.server_process import serving
from sidedraft.drafts.configs import read_config
from sidedraft.integrations.transformers.connect import connect
from sidedraft.integrations.transformers.loop import generate
from sidedraft.integrations.transformers.options import Options
from sidedraft.settings import VerifierSettings
from sidedraft.targets.smollm2 import obtain
from sidedraft.targets.tapped import TappedTarget
from sidedraft.targets.text import text_encoder
from sidedraft.training.features import Features, Trajectory
from sidedraft.training.ngram import ngram_acceptance
from sidedraft.training.prompts import read_prompts

DEMO = Path(__file__).resolve().parents[1] / "demo"
DEPTH = 5
LENGTH, MEGABYTES = 2.7, 26.0
DEADLINE = 10.0
"""Seconds: acceptance is measured here, not patience."""


def main() -> int:
    torch.set_num_threads(2)
    draft, folder = read_config(DEMO / "draft"), obtain(note=print)
    target, encode = TappedTarget.load(folder, draft.taps), text_encoder(folder)
    prompts = read_prompts(DEMO / "prompts" / "held-out.json")
    prefix = encode(prompts.prefix)
    ids = [encode(prompts.prefix + text + prompts.suffix) for text in prompts.prompts]
    options = Options(max_new_tokens=150, depth=DEPTH, eos=target.stop_tokens, batch=8)
    patience = VerifierSettings(deadline=DEADLINE)
    with serving(DEMO / "draft", folder, ("--threads", "2", "--kv-memory", "256MiB")) as server:
        server.wait_ready(120)
        with connect(server.address, target, folder, draft, settings=patience) as drafter:
            if not drafter.wait_connected(10):
                print(f"no session with the server: {drafter.status().refusal}")
                return 1
            report = generate(target, ids, options, drafter)
    answers = [
        Trajectory(torch.tensor(one.prompt[len(prefix) :] + one.tokens), len(one.prompt) - len(prefix), _NONE)
        for one in report.generations
    ]
    features = Features(prompts.name, torch.tensor(prefix), _NONE, answers)
    lookup = max(ngram_acceptance(features, DEPTH, low=low).length for low in (1, 2, 3))
    size = (DEMO / "draft" / "model.safetensors").stat().st_size / 1e6
    steps = sum(len(one.drafted) for one in report.generations)
    places = " ".join(f"{share:.2f}" for share in report.acceptance_by_position)
    print(f"acceptance length {report.acceptance_length:.2f} ({places}; {len(ids)} prompts, {steps} steps)")
    print(f"bars: {LENGTH} and n-gram lookup on the same outputs, {lookup:.2f}")
    print(f"model.safetensors: {size:.1f} MB (bar: {MEGABYTES:.0f} MB)")
    if report.no_draft:
        print(f"steps without a draft: {dict(report.no_draft)}")
    return int(not (report.acceptance_length >= max(LENGTH, lookup) and size <= MEGABYTES))


_NONE = torch.zeros(0)
"""Lookup needs no aux states."""

if __name__ == "__main__":
    sys.exit(main())
