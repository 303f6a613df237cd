"""One request between two forwards: what is known, what is computed, what is drafted.

Its *known* tokens are the prompt and what was sampled; the first `computed` of them have keys and values in
the target's cache. A forward runs known tokens that are not computed yet, then the draft. What it shows to be
right becomes known and computed; what it shows to be wrong is dropped by not counting it as computed, as the
next forward overwrites its cache rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from sidedraft.integrations.transformers.options import Options
from sidedraft.integrations.transformers.report import Generation
from sidedraft.integrations.transformers.sampling import Sampler, accept
from sidedraft.verifier.submission import Submission


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

    def submission(self, aux: Tensor) -> Submission:
        """Report the last computed tokens with their aux states, [n, row_width], and ask for a draft."""
        first = self.computed - len(aux)
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


def open_requests(
    prompts: Sequence[Sequence[int]], options: Options, *, vocab_size: int, max_position: int
) -> list[Request]:
    """A request for every prompt. Raises ValueError naming the prompt that the target cannot run, and why."""
    requests = []
    for index, prompt in enumerate(prompts):
        if not prompt:
            raise ValueError(f"prompt {index}: empty; expected at least one token")
        if not 0 <= min(prompt) <= max(prompt) < vocab_size:
            raise ValueError(
                f"prompt {index}: token ids {min(prompt)}..{max(prompt)}; expected 0..{vocab_size - 1}"
            )
        if len(prompt) + options.max_new_tokens > max_position:
            raise ValueError(
                f"prompt {index}: {len(prompt)} tokens and {options.max_new_tokens} new ones; "
                f"expected at most {max_position}, the target's positions"
            )
        sampler = Sampler(options.temperature, (options.seed, index))
        requests.append(Request(list(prompt), options, sampler, Generation(list(prompt))))
    return requests
