"""What a verifier reports of itself, for scrapes and for the status."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from sidedraft.metrics import quantile
from sidedraft.metrics.families import Families
from sidedraft.wire.figures import BOUNDS_US, COUNTS, STAGES
from sidedraft.wire.messages import Report

BREAKER_STATES = ("closed", "half_open", "open")

_PREFIX = "sidedraft_verifier"
_BY_LABEL = frozenset({"bytes_control", "bytes_bulk", "bytes_rows"})
"""Counts that are exported as one metric with a label."""


def export(families: Families, report: Report, label: str, max_depth: int) -> None:
    """Everything that this version knows the name of, as `sidedraft_verifier_*` with a `verifier` label."""
    _export_state(families, report, label)
    for name, text in COUNTS.items():
        if name in report.counts and name not in _BY_LABEL:
            families.counter(f"{_PREFIX}_{name}", _sentence(text), report.counts[name], verifier=label)
    _export_bytes(families, report, label)
    for name in STAGES:
        times = report.stages.get(name)
        if times is not None:
            text = "How long the stages of a proposal take."
            families.stage(
                f"{_PREFIX}_stage_seconds", text, times.counts, times.total_us, verifier=label, stage=name
            )
    _export_acceptance(families, report.drafted[:max_depth], report.accepted[:max_depth], label)


def _export_state(families: Families, report: Report, label: str) -> None:
    for state in BREAKER_STATES:
        text = "1 for the state the breaker is in; while it is not closed, no step waits for drafts."
        value = report.breaker == state
        families.gauge(f"{_PREFIX}_breaker", text, value, verifier=label, state=state)
    for name, text, figure in (
        ("requests", "Requests the engine has.", report.requests),
        ("requests_behind", "Of those, how many the server has to catch up with.", report.behind),
        ("deadline_seconds", "What the next step would wait at most.", report.deadline_us / 1e6),
    ):
        families.gauge(f"{_PREFIX}_{name}", text, figure, verifier=label)


def _export_bytes(families: Families, report: Report, label: str) -> None:
    counts = report.counts
    lanes = {lane: counts.get(f"bytes_{lane}", 0) for lane in ("control", "bulk")}
    rows = counts.get("bytes_rows", 0)
    for kind, value in (("rows", rows), ("tokens", max(0, sum(lanes.values()) - rows))):
        text = "Payload bytes sent, by what they are."
        families.counter(f"{_PREFIX}_sent_bytes", text, value, verifier=label, kind=kind)
    for lane, value in lanes.items():
        text = "Payload bytes sent, by connection."
        families.counter(f"{_PREFIX}_connection_bytes", text, value, verifier=label, connection=lane)


def _export_acceptance(
    families: Families, drafted: Sequence[int], accepted: Sequence[int], label: str
) -> None:
    for position, (tried, passed) in enumerate(zip(drafted, accepted, strict=True)):
        at = {"verifier": label, "position": str(position)}
        text = "Judged drafts that had a token at this position."
        families.counter(f"{_PREFIX}_draft_tokens_per_pos", text, tried, **at)
        text = "Judged drafts whose token at this position was accepted."
        families.counter(f"{_PREFIX}_accepted_tokens_per_pos", text, passed, **at)
    if drafted:
        # As many drafts had more than n tokens accepted as had the token at position n accepted.
        beyond = [drafted[0], *accepted, 0]
        counts = [more - fewer for more, fewer in pairwise(beyond)]
        text = "Tokens accepted of a judged draft; the acceptance length is one more than their mean."
        bounds = range(len(accepted))
        families.histogram(f"{_PREFIX}_accepted_tokens", text, bounds, counts, sum(accepted), verifier=label)


def describe(report: Report) -> dict[str, Any]:
    """The same as JSON values, stages summed up."""
    judged = report.drafted[0] if report.drafted else 0
    return {
        "breaker": report.breaker,
        "requests": report.requests,
        "behind": report.behind,
        "deadline_ms": round(report.deadline_us / 1e3, 3),
        "counts": {name: report.counts[name] for name in COUNTS if name in report.counts},
        "stages_ms": {
            name: _summary(report.stages[name].counts, report.stages[name].total_us)
            for name in STAGES
            if name in report.stages
        },
        "acceptance": {
            "judged": judged,
            "length": round(1 + sum(report.accepted) / judged, 3) if judged else None,
            "drafted": list(report.drafted),
            "accepted": list(report.accepted),
        },
    }


def _summary(counts: Sequence[int], total_us: int) -> dict[str, Any]:
    steps = sum(counts)
    shares = {name: quantile(BOUNDS_US, counts, share) for name, share in (("p50", 0.5), ("p99", 0.99))}
    return {
        "steps": steps,
        "mean": round(total_us / steps / 1e3, 3) if steps else None,
        **{name: None if value is None else round(value / 1e3, 3) for name, value in shares.items()},
    }


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."
