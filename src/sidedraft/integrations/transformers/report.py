"""What a run gives: outputs, what became of the drafts, and where the time went."""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class Generation:
    """One prompt's output."""

    prompt: list[int]
    tokens: list[int] = field(default_factory=list)
    """The output, an ending token included."""
    finish: str = ""
    """`eos` or `length`; empty while it runs."""
    drafted: list[int] = field(default_factory=list)
    """Draft tokens verified in each step after the prompt's."""
    accepted: list[int] = field(default_factory=list)
    """How many of them were accepted and lie within the output."""


class Stages:
    """Seconds by stage, one sample a step. The names are the field's (docs/integrations.md)."""

    def __init__(self) -> None:
        self.samples: defaultdict[str, list[float]] = defaultdict(list)

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.samples[name].append(time.perf_counter() - start)

    def add(self, seconds: Mapping[str, float]) -> None:
        """One sample of each of several stages, measured elsewhere."""
        for name, value in seconds.items():
            self.samples[name].append(value)

    def summary(self) -> dict[str, dict[str, float]]:
        """Per stage: number of samples, total seconds, median milliseconds."""
        return {
            name: {
                "count": len(found),
                "total_s": round(sum(found), 6),
                "median_ms": round(statistics.median(found) * 1e3, 3),
            }
            for name, found in self.samples.items()
        }


@dataclass(slots=True)
class Report:
    """All of a run. Lengths are means over steps; a step is one target forward after the prompt's."""

    generations: list[Generation] = field(default_factory=list)
    """In the order of the prompts."""
    stages: Stages = field(default_factory=Stages)
    no_draft: Counter[str] = field(default_factory=Counter)
    """Why a wanted draft did not come, counted."""
    seconds: float = 0.0

    @property
    def new_tokens(self) -> int:
        return sum(len(one.tokens) for one in self.generations)

    @property
    def tokens_per_second(self) -> float:
        """Of the whole run, prompts included."""
        return self.new_tokens / self.seconds if self.seconds else 0.0

    @property
    def acceptance_length(self) -> float:
        """Tokens a step with a draft gave, its own token included; 0 when there was no such step."""
        steps = [accepted for drafted, accepted in self._steps() if drafted]
        return 1 + sum(steps) / len(steps) if steps else 0.0

    @property
    def acceptance_by_position(self) -> list[float]:
        """For each draft position, how often it was accepted where it was drafted."""
        steps = list(self._steps())
        deepest = max((drafted for drafted, _ in steps), default=0)
        found = []
        for position in range(deepest):
            reached = [accepted > position for drafted, accepted in steps if drafted > position]
            found.append(sum(reached) / len(reached))
        return found

    def to_json(self) -> dict[str, Any]:
        """Plain values for `json.dumps`; text is the caller's to add."""
        return {
            "seconds": round(self.seconds, 4),
            "new_tokens": self.new_tokens,
            "tokens_per_second": round(self.tokens_per_second, 3),
            "steps": sum(len(one.drafted) for one in self.generations),
            "steps_with_draft": sum(drafted > 0 for drafted, _ in self._steps()),
            "acceptance_length": round(self.acceptance_length, 4),
            "acceptance_by_position": [round(share, 4) for share in self.acceptance_by_position],
            "no_draft": {str(reason): count for reason, count in self.no_draft.items()},
            "stages": self.stages.summary(),
            "generations": [
                {
                    "prompt_tokens": len(one.prompt),
                    "tokens": one.tokens,
                    "finish": one.finish,
                    "drafted": one.drafted,
                    "accepted": one.accepted,
                }
                for one in self.generations
            ],
        }

    def _steps(self) -> Iterator[tuple[int, int]]:
        for one in self.generations:
            yield from zip(one.drafted, one.accepted, strict=True)
