"""The speculative loop, as small as it can be said (docs/integrations.md goes through it line by line).

A step is one forward of the target over a batch of requests. It verifies the drafts that came, tells the
draft server what became of them together with the aux states the forward left, and asks for the next drafts.
Without a drafter, or in a step without drafts, the same loop runs one token a request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sidedraft.integrations.transformers.options import Options
from sidedraft.integrations.transformers.report import Report
from sidedraft.integrations.transformers.request import Request, open_requests
from sidedraft.targets.row_cache import RowCache
from sidedraft.targets.tapped import Heads, TappedTarget, TargetStep
from sidedraft.verifier.drafter import Drafter
from sidedraft.verifier.submission import Draft


def generate(
    target: TappedTarget,
    prompts: Sequence[Sequence[int]],
    options: Options,
    drafter: Drafter | None = None,
    progress: Callable[[Report], None] | None = None,
) -> Report:
    """Continue every prompt (token ids). Without a drafter: the same loop, one token a step.

    progress is called after every step. Raises ValueError for a prompt the target cannot run; nothing that
    the draft server does or fails to do raises.
    """
    requests = open_requests(prompts, options, vocab_size=target.vocab_size, max_position=target.max_position)
    report = Report([request.result for request in requests])
    start = time.perf_counter()
    for at in range(0, len(requests), options.batch):
        batch = requests[at : at + options.batch]
        cache = target.new_cache(len(batch), max(len(r.tokens) for r in batch) + options.max_new_tokens)
        while not all(request.done for request in batch):
            good = _verify(target, cache, batch, report)
            if drafter is not None:
                _draft(drafter, good, report)
            report.seconds = time.perf_counter() - start
            if progress is not None:
                progress(report)
    return report


def _verify(
    target: TappedTarget, cache: RowCache, requests: list[Request], report: Report
) -> list[tuple[Request, Tensor]]:
    """Run the target once. Gives every request that took part, with the aux states of its good tokens."""
    prompt = any(not request.result.tokens for request in requests)
    blocks = [request.block() for request in requests]
    with report.stages.measure("target_prompt" if prompt else "target_forward"):
        step = _forward(target, cache, requests, blocks)
    with report.stages.measure("sample"):
        return [
            (request, aux[: request.take(block, logits[: len(block)])])
            for request, block, logits, aux in zip(requests, blocks, step.logits, step.aux, strict=True)
            if block
        ]


def _draft(drafter: Drafter, good: list[tuple[Request, Tensor]], report: Report) -> None:
    """Report what the target confirmed, and get drafts for the next step, or reasons why there are none."""
    with report.stages.measure("context_gather"):
        submissions = [request.submission(aux) for request, aux in good]
    with report.stages.measure("draft"):
        pending = drafter.submit(submissions)
        answers = pending.result()
    for request, _ in good:
        if request.depth:
            answer = answers[request]
            if isinstance(answer, Draft):
                request.draft = answer.tokens.tolist()
            else:
                report.no_draft[answer.reason] += 1
    if any(request.draft for request, _ in good):
        report.stages.add(pending.times)
    drafter.release([request for request, _ in good if request.done])


def _forward(
    target: TappedTarget, cache: RowCache, requests: list[Request], blocks: list[list[int]]
) -> TargetStep:
    """Run all blocks in one batch, as wide as the longest: one column when no draft came."""
    width = max(len(block) for block in blocks)
    tokens = torch.tensor([block + [0] * (width - len(block)) for block in blocks])
    lengths = torch.tensor([request.computed for request in requests])
    counts = torch.tensor([len(block) for block in blocks])
    on = target.device
    heads: Heads = "all" if any(request.draft for request in requests) else "last"
    return target.forward(cache, tokens.to(on), lengths.to(on), counts.to(on), heads=heads)
