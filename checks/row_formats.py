"""What each row format costs in acceptance: at least 0.97 of float32's, on the shipped draft.

Measured in a real loop, not as an error of rows: a server with the shipped draft, the reference verifier,
held-out prompts, a session a format. Greedy output does not depend on drafts, so that every format is judged
on the same tokens. The format that was agreed, and the bytes of a row that travelled, are the session's.
Besides: how many draft tokens are the same as float32's, and that rows which are wrong (their signs turned)
do fall below the bar.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Sequence
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
from sidedraft.training.prompts import read_prompts
from sidedraft.verifier.drafter import Drafter
from sidedraft.verifier.pending import Pending
from sidedraft.verifier.submission import Draft, Submission
from sidedraft.wire.rows import KINDS

DEMO = Path(__file__).resolve().parents[1] / "demo"
DEPTH = 5
PROMPTS, TOKENS = 12, 64
BAR = 0.97
DEADLINE = 10.0
"""Seconds: acceptance is measured here, not patience."""


class Turned:
    """A drafter whose rows say the opposite, if asked to; keeps the drafts that come."""

    def __init__(self, drafter: Drafter, *, turned: bool) -> None:
        self._drafter = drafter
        self._sign = -1 if turned else 1
        self.drafts: dict[tuple[int, ...], list[int]] = {}
        """By the tokens that they follow."""

    def submit(self, submissions: Sequence[Submission]) -> Pending:
        for one in submissions:
            one.rows = one.rows * self._sign
        pending = self._drafter.submit(submissions)
        for request, outcome in pending.result().items():
            if isinstance(outcome, Draft):
                self.drafts[tuple(request.tokens)] = outcome.tokens.tolist()
        return pending

    def release(self, requests: Sequence[Hashable]) -> None:
        self._drafter.release(requests)


def main() -> int:
    torch.set_num_threads(2)
    draft, folder = read_config(DEMO / "draft"), obtain(note=print)
    target, encode = TappedTarget.load(folder, draft.taps), text_encoder(folder)
    prompts = read_prompts(DEMO / "prompts" / "held-out.json")
    texts = prompts.prompts[:: len(prompts.prompts) // PROMPTS][:PROMPTS]
    ids = [encode(prompts.prefix + text + prompts.suffix) for text in texts]
    options = Options(max_new_tokens=TOKENS, depth=DEPTH, eos=target.stop_tokens, batch=PROMPTS)
    first: dict[tuple[int, ...], list[int]] = {}
    short, full, best, outputs = False, 0.0, 0.0, None
    print(f"{len(ids)} held-out prompts, {TOKENS} tokens each, depth {DEPTH}")
    print("format            bytes a row  of f32  tokens a step  of f32's  drafted alike")
    with serving(DEMO / "draft", folder, ("--threads", "2", "--kv-memory", "256MiB")) as server:
        server.wait_ready(120)
        for kind, turned in [*((kind, False) for kind in KINDS), ("f32", True)]:
            # Nothing is shared, so that what was turned is nobody else's context.
            settings = VerifierSettings(
                deadline=DEADLINE, late_lost=10 * DEADLINE, row_formats=(kind,), sharing=False
            )
            with connect(
                server.address, target, folder, draft, settings=settings, draft_dir=DEMO / "draft"
            ) as drafter:
                if not drafter.wait_connected(10):
                    print(f"no session with the server: {drafter.status().refusal}")
                    return 1
                listening = Turned(drafter, turned=turned)
                report, status = generate(target, ids, options, listening), drafter.status()  # type: ignore[arg-type]
            size = status.counters["bytes_rows"] / status.counters["rows_sent"]
            length = report.acceptance_length
            tokens = [one.tokens for one in report.generations]
            if not first:
                full, best, outputs, first = size, length, tokens, listening.drafts
            both = [(first[at], there) for at, there in listening.drafts.items() if at in first]
            pairs = [pair for ours, theirs in both for pair in zip(ours, theirs, strict=False)]
            alike = sum(a == b for a, b in pairs) / len(pairs)
            name, share = f"{kind}, turned" if turned else kind, length / best
            print(
                f"{name:<16} {size:>12,.0f} {size / full:>7.3f} {length:>14.3f} {share:>9.3f} {alike:>14.4f}"
            )
            agreed = None if status.agreement is None else status.agreement.row_format.kind
            if agreed != kind or report.no_draft or tokens != outputs:
                print(f"  agreed {agreed}, no draft {dict(report.no_draft)}, same output {tokens == outputs}")
            short |= agreed != kind or tokens != outputs or (share < BAR) is not turned
    print(f"bar: {BAR} of f32's tokens a step, below it with turned rows; every output the same")
    return int(short)


if __name__ == "__main__":
    sys.exit(main())
