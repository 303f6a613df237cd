"""The speculative loop, as small as it can be said (docs/integrations.md goes through it line by line).

A request is its *known* tokens, the prompt and then what was sampled, and how many of them are *computed*,
that is have keys and values in the target's cache. One forward runs known tokens that are not computed yet,
then the draft. What it shows to be right is kept and reported to the draft server with the aux states it
left; what it shows to be wrong is dropped by not counting it as computed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from sidedraft.integrations.transformers.options import Options
from sidedraft.integrations.transformers.report import Generation, Report
from sidedraft.integrations.transformers.sampling import Sampler, accept
from sidedraft.targets.row_cache import RowCache
from sidedraft.targets.tapped import Heads, TappedTarget, TargetStep
from sidedraft.verifier.drafter import Drafter
from sidedraft.verifier.submission import Draft, Submission


@dataclass(slots=True, eq=False)
class Request:
    """One prompt on its way. Compared by identity, so that it can name itself to the drafter."""

    tokens: list[int]
    """Known: the prompt and the output so far. The last one is the next draft's anchor."""
    options: Options
    sampler: Sampler
    result: Generation
    computed: int = 0
    draft: list[int] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return self.result.finish != ""

    @property
    def depth(self) -> int:
        """Draft tokens wanted now: none inside the prompt, none that max_new_tokens would cut off."""
        if self.done or self.computed + 1 < len(self.tokens):
            return 0
        return min(self.options.depth, self.options.max_new_tokens - len(self.result.tokens) - 1)

    def block(self) -> list[int]:
        """Tokens of the next forward, at positions computed, computed + 1, ..."""
        if self.done:
            return []
        return self.tokens[self.computed : self.computed + self.options.chunk] + self.draft

    def take(self, block: list[int], logits: Tensor) -> int:
        """Take in what the target says of a block; logits: [len(block), V], or its last row alone.

        Returns how many of the block's tokens, from the first, belong to prompt and output: their cache rows
        and aux states are good, those of the others must not be used.
        """
        good = len(block) - len(self.draft)
        if self.computed + good == len(self.tokens):  # else the prompt goes on: there is nothing to sample
            kept = self._cut(accept(logits[-1 - len(self.draft) :], self.draft, self.sampler))
            good += len(kept) - 1
            if self.result.tokens:
                self.result.drafted.append(len(self.draft))
                self.result.accepted.append(len(kept) - 1)
            self.tokens += kept
            self.result.tokens += kept
        self.computed += good
        self.draft = []
        return good

    def _cut(self, kept: list[int]) -> list[int]:
        """The tokens up to the output's end, if it is among them."""
        room = self.options.max_new_tokens - len(self.result.tokens)
        for place, token in enumerate(kept[:room]):
            if token in self.options.eos:
                self.result.finish = "eos"
                return kept[: place + 1]
        if len(kept) >= room:
            self.result.finish = "length"
        return kept[:room]

    def submission(self, good: int, aux: Tensor) -> Submission:
        """Report the last `good` computed tokens and their aux states, [good, row_width]; ask for a draft."""
        first = self.computed - good
        return Submission(
            request=self,
            first=first,
            tokens=self.tokens[first : self.computed],
            next_token=self.tokens[self.computed],
            depth=self.depth,
            rows=aux,
            rows_at=first,
            horizon=len(self.result.prompt),
        )


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
    requests = []
    for index, prompt in enumerate(prompts):
        _check(index, prompt, options, target)
        sampler = Sampler(options.temperature, (options.seed, index))
        requests.append(Request(list(prompt), options, sampler, Generation(list(prompt))))
    report = Report([request.result for request in requests])
    start = time.perf_counter()
    for at in range(0, len(requests), options.batch):
        batch = requests[at : at + options.batch]
        cache = target.new_cache(len(batch), max(len(r.tokens) for r in batch) + options.max_new_tokens)
        while not all(request.done for request in batch):
            _step(target, cache, batch, drafter, report)
            report.seconds = time.perf_counter() - start
            if progress is not None:
                progress(report)
    return report


def _step(
    target: TappedTarget, cache: RowCache, requests: list[Request], drafter: Drafter | None, report: Report
) -> None:
    prompt = any(not request.result.tokens for request in requests)
    blocks = [request.block() for request in requests]
    with report.stages.measure("target_prompt" if prompt else "target_forward"):
        step = _forward(target, cache, requests, blocks)
    with report.stages.measure("sample"):
        good = [
            request.take(block, logits[: len(block)]) if block else 0
            for request, block, logits in zip(requests, blocks, step.logits, strict=True)
        ]
    if drafter is None:
        return
    with report.stages.measure("context_gather"):
        submissions = [
            request.submission(count, aux[:count])
            for request, count, aux in zip(requests, good, step.aux, strict=True)
            if count
        ]
    with report.stages.measure("draft"):
        pending = drafter.submit(submissions)
        answers = pending.result()
    for request in requests:
        if request.depth:
            answer = answers[request]
            if isinstance(answer, Draft):
                request.draft = answer.tokens.tolist()
            else:
                report.no_draft[answer.reason] += 1
    if any(request.draft for request in requests):
        report.stages.add(pending.times)
    drafter.release(
        [request for request, count in zip(requests, good, strict=True) if count and request.done]
    )


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


def _check(index: int, prompt: Sequence[int], options: Options, target: TappedTarget) -> None:
    if not prompt:
        raise ValueError(f"prompt {index}: empty; expected at least one token")
    if not 0 <= min(prompt) <= max(prompt) < target.vocab_size:
        raise ValueError(
            f"prompt {index}: token ids {min(prompt)}..{max(prompt)}; expected 0..{target.vocab_size - 1}"
        )
    if len(prompt) + options.max_new_tokens > target.max_position:
        raise ValueError(
            f"prompt {index}: {len(prompt)} tokens and {options.max_new_tokens} new ones; expected at most "
            f"{target.max_position}, the target's positions"
        )
