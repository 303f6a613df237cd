"""Every prompt in two arms, one after the other: the target alone, and with remote drafts."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sidedraft.cli.demonstration.assets import Kind
from sidedraft.integrations.transformers.compare import Verdict, judge
from sidedraft.integrations.transformers.loop import generate
from sidedraft.integrations.transformers.options import Options
from sidedraft.integrations.transformers.report import Report
from sidedraft.targets.tapped import TappedTarget
from sidedraft.verifier.drafter import Drafter

Encode = Callable[[str], list[int]]


@dataclass(slots=True)
class KindResult:
    """Both arms over the prompts of one kind; entry i of each list is prompt i."""

    name: str
    domain: bool
    plain: list[Report] = field(default_factory=list)
    drafted: list[Report] = field(default_factory=list)
    verdict: Verdict | None = None

    @property
    def speed_ups(self) -> list[float]:
        """Seconds without drafts over seconds with them, prompt processing included."""
        return [a.seconds / b.seconds for a, b in zip(self.plain, self.drafted, strict=True)]

    @property
    def acceptance_length(self) -> float:
        """Tokens a step with a draft gave."""
        steps = [n for r in self.drafted for g in r.generations for n, d in _steps(g) if d]
        return 1 + sum(steps) / len(steps) if steps else 0.0

    def tokens_per_second(self, arm: list[Report]) -> float:
        return sum(r.new_tokens for r in arm) / sum(r.seconds for r in arm)


def _steps(generation: Any) -> list[tuple[int, int]]:
    return list(zip(generation.accepted, generation.drafted, strict=True))


def run_arms(
    target: TappedTarget,
    drafter: Drafter,
    kinds: Sequence[Kind],
    encode: Encode,
    depth: int,
    progress: Callable[[int, int, str], None],
) -> list[KindResult]:
    """Run all kinds greedily and judge every output.

    progress: called before each prompt with prompts done, prompts in all, and the kind's name.
    """
    total, done, results = sum(len(kind.prompts) for kind in kinds), 0, []
    for kind in kinds:
        result = KindResult(kind.name, kind.domain)
        options = Options(max_new_tokens=kind.max_new_tokens, depth=depth, eos=target.stop_tokens)
        prompts = [encode(text) for text in kind.prompts]
        for prompt in prompts:
            progress(done, total, kind.name)
            # The arms change places, so that a machine that warms up or tires favours neither.
            arms = [(result.plain, None), (result.drafted, drafter)]
            for reports, with_drafts in arms if done % 2 == 0 else reversed(arms):
                reports.append(generate(target, [prompt], options, with_drafts))
            done += 1
        outputs = [[r.generations[0].tokens for r in arm] for arm in (result.plain, result.drafted)]
        result.verdict = judge(target, prompts, *outputs)
        results.append(result)
    progress(done, total, "")
    return results


def warm_up(target: TappedTarget, drafter: Drafter, prompt: list[int], depth: int) -> None:
    """One short run of each arm that is not measured: first calls allocate and choose kernels."""
    options = Options(max_new_tokens=8, depth=depth)
    for with_drafts in (None, drafter):
        generate(target, [prompt], options, with_drafts)


def stage_medians(results: Sequence[KindResult]) -> dict[str, float]:
    """Median milliseconds of each stage of a step with drafts, over all prompts."""
    samples: dict[str, list[float]] = {}
    for result in results:
        for report in result.drafted:
            for stage, found in report.stages.samples.items():
                samples.setdefault(stage, []).extend(found)
    return {stage: statistics.median(found) * 1e3 for stage, found in samples.items()}


def to_json(results: Sequence[KindResult]) -> dict[str, Any]:
    """Plain values for `json.dumps`."""
    domain = [up for result in results if result.domain for up in result.speed_ups]
    missing: Counter[str] = Counter()
    for result in results:
        for report in result.drafted:
            missing.update(report.no_draft)
    return {
        "kinds": [
            {
                "name": result.name,
                "domain": result.domain,
                "prompts": len(result.plain),
                "tokens": sum(r.new_tokens for r in result.drafted),
                "plain_tokens_per_second": round(result.tokens_per_second(result.plain), 2),
                "drafted_tokens_per_second": round(result.tokens_per_second(result.drafted), 2),
                "speed_ups": [round(up, 3) for up in result.speed_ups],
                "acceptance_length": round(result.acceptance_length, 3),
                "identical": result.verdict.identical if result.verdict else 0,
                "ties": result.verdict.ties if result.verdict else 0,
                "differences": [str(d) for d in result.verdict.differences] if result.verdict else [],
            }
            for result in results
        ],
        "mean_speed_up_of_domain": round(statistics.mean(domain), 3) if domain else None,
        "no_draft": {str(reason): count for reason, count in missing.items()},
        "stages_ms": {stage: round(value, 3) for stage, value in stage_medians(results).items()},
        "ok": all(result.verdict is not None and result.verdict.ok for result in results),
    }
