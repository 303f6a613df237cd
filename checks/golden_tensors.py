"""Golden tensors: every family and variant equals its public implementation.

In fp32, over incremental steps, three ways: alone on plain memory, through the engine beside other requests,
and through the engine after a prefix restore. Bar: every logit and confidence within 2e-4, every token equal.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests")]

from sidedraft.drafts import load_draft  # noqa: E402 - the path comes first
from support.dense_context import DenseContext  # noqa: E402
from support.engine_client import Client, make_engine, random_aux, text  # noqa: E402
from support.golden import TARGET, TOLERANCE, GoldenCase, golden_case, golden_names  # noqa: E402
from support.recording_draft import RecordingDraft  # noqa: E402

BLOCK = 16


class Tally:
    """What one case showed one way."""

    def __init__(self) -> None:
        self.errors: list[float] = []
        self.tokens = self.equal = 0

    def compare(self, tokens: list[int], expected: Tensor, *pairs: tuple[Tensor, Tensor | None]) -> None:
        self.tokens += len(expected)
        self.equal += sum(a == b for a, b in zip(tokens, expected.tolist(), strict=True))
        for found, golden in pairs:
            if golden is not None:
                self.errors.append(float((found - golden).abs().max()))

    @property
    def holds(self) -> bool:
        """Also False for NaN, and where nothing was compared."""
        return (
            0 < self.tokens == self.equal and bool(self.errors) and all(e <= TOLERANCE for e in self.errors)
        )


def alone(case: GoldenCase) -> Tally:
    draft, tally, rows = load_draft(case.draft, TARGET), Tally(), []
    for step in case.steps:
        rows.append(draft.context_rows(step.aux, torch.arange(step.first, step.position)))
        anchor, depth = torch.tensor([step.position]), len(step.tokens)
        context = DenseContext(
            draft.shape,
            [torch.cat(rows)],
            [torch.arange(step.position)],
            anchor,
            draft.shape.query_rows(depth),
        )
        found = draft.propose(torch.tensor([step.anchor]), anchor, depth, context)
        tally.compare(found.tokens[0].tolist(), step.tokens, (found.logits[0], step.logits))
        if found.confidence is not None:
            tally.compare([], step.tokens[:0], (found.confidence[0], step.confidence))
    return tally


def beside_others(case: GoldenCase) -> Tally:
    draft, tally = RecordingDraft(load_draft(case.draft, TARGET)), Tally()
    client = Client(make_engine(draft, block_size=BLOCK))
    request, other, rng = client.open(), client.open(), np.random.default_rng(3)
    for step in case.steps:
        depth, new = len(step.tokens), text(step.position)[step.first :] % 60
        work = request.advance(new, aux=step.aux.numpy(), depth=depth, anchor=step.anchor)
        aux = random_aux(rng, 40, client.width)
        answer = client.step(other.advance(text(40) % 60, aux=aux, depth=depth, anchor=5), work)[1]
        tally.compare(answer.tokens.tolist(), step.tokens, (draft.logits_at(step.position), step.logits))
    return tally


def after_restore(case: GoldenCase) -> Tally:
    draft, tally = RecordingDraft(load_draft(case.draft, TARGET)), Tally()
    client = Client(make_engine(draft, block_size=BLOCK))
    first, last = client.open(), case.steps[-1]
    for step in case.steps[:-1]:
        client.step(first.advance(text(step.position)[step.first :] % 60, aux=step.aux.numpy()))
    first.release()
    computed = draft.rows_computed
    second = client.open(text(last.first) % 60)
    new = text(last.position)[last.first :] % 60
    work = second.advance(new, aux=last.aux.numpy(), depth=len(last.tokens), anchor=last.anchor)
    answer = client.step(work)[0]
    if draft.rows_computed - computed == len(last.aux):  # else nothing was restored: no sample, no pass
        tally.compare(answer.tokens.tolist(), last.tokens, (draft.logits_at(last.position), last.logits))
    return tally


def main() -> int:
    torch.set_num_threads(1)
    held = True
    print(f"{'case':24}{'way':16}{'max error':>10}{'equal tokens':>14}  (bar: {TOLERANCE:.0e}, all)")
    for name in golden_names():
        case = golden_case(name)
        for way, run in (("alone", alone), ("batched", beside_others), ("restored", after_restore)):
            tally = run(case)
            held &= tally.holds
            worst = max(tally.errors, default=np.nan)
            count = f"{tally.equal} of {tally.tokens}"
            print(f"{name:24}{way:16}{worst:10.1e}{count:>14}" + ("" if tally.holds else "  SHORT"))
        print(f"{'':24}made with {case.origin}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
