"""Did drafting change the output? The tie rule of the design (section 1), in fp32.

Verifying several tokens in one forward multiplies matrices of other shapes than one token at a time does, so
sums differ in their last bits, and where the target's two best tokens are equal to that precision either is
its greedy output. Such a tie is reported and does not count against the drafts; any other difference does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import torch

from sidedraft.targets.tapped import TappedTarget

TIE_GAP = 1e-3
"""Greatest difference of two logits that are called equal."""
TIE_SHARE = 0.02
"""Share of the prompts that may differ by ties; one prompt always may."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Where an output first leaves its reference."""

    prompt: int
    """Index of the prompt."""
    place: int
    """Index into the output."""
    reference: int | None
    """The reference's token there; None when it had ended."""
    output: int | None
    gap: float
    """Between the target's logits of the two tokens; infinite when they are not its two best."""

    @property
    def tie(self) -> bool:
        return self.gap < TIE_GAP

    def __str__(self) -> str:
        what = "tie" if self.tie else "DIFFERENT"
        return (
            f"prompt {self.prompt}, new token {self.place}: {self.reference} became {self.output} "
            f"(gap {self.gap:.2g}): {what}"
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outputs of a whole run against their references."""

    prompts: int
    differences: tuple[Difference, ...]

    @property
    def ties(self) -> int:
        return sum(difference.tie for difference in self.differences)

    @property
    def identical(self) -> int:
        return self.prompts - len(self.differences)

    @property
    def ok(self) -> bool:
        """Only ties, and few of them."""
        return self.ties == len(self.differences) and self.ties <= max(1, TIE_SHARE * self.prompts)

    def __str__(self) -> str:
        lines = [f"{self.identical} of {self.prompts} outputs identical, {self.ties} ties"]
        return "\n".join(lines + [str(difference) for difference in self.differences])


def judge(
    target: TappedTarget,
    prompts: Sequence[Sequence[int]],
    references: Sequence[Sequence[int]],
    outputs: Sequence[Sequence[int]],
) -> Verdict:
    """Compare greedy outputs with references that were made without drafts; all are token ids.

    target: in fp32; it is run once a difference. Raises ValueError when the counts do not match or the
    target has another dtype.
    """
    if not len(prompts) == len(references) == len(outputs):
        raise ValueError(f"{len(prompts)} prompts, {len(references)} references, {len(outputs)} outputs")
    dtype = next(target.model.parameters()).dtype
    if dtype != torch.float32:
        raise ValueError(f"the tie rule is defined in float32, the target runs in {dtype}")
    differences = []
    for index, (prompt, reference, output) in enumerate(zip(prompts, references, outputs, strict=True)):
        for place, (wanted, found) in enumerate(zip_longest(reference, output)):
            if wanted != found:
                gap = _gap(target, [*prompt, *reference[:place]], wanted, found)
                differences.append(Difference(index, place, wanted, found, gap))
                break
    return Verdict(len(prompts), tuple(differences))


def _gap(target: TappedTarget, context: list[int], one: int | None, other: int | None) -> float:
    """Between two tokens after a teacher-forced context, if they are the target's best two."""
    cache = target.new_cache(1, len(context))
    step = target.forward(
        cache,
        torch.tensor([context], device=target.device),
        torch.tensor([0], device=target.device),
        torch.tensor([len(context)], device=target.device),
        heads="last",
    )
    best = step.logits[0, -1].topk(2)
    if set(best.indices.tolist()) != {one, other}:
        return float("inf")
    return float(best.values[0] - best.values[1])
