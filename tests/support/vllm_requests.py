"""What a test asks a vLLM for, and what it gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


class VllmError(Exception):
    """vLLM did not do what it was asked to; the message ends with the tail of its log."""


@dataclass(frozen=True)
class Request:
    """One prompt. `params` are those of `SamplingParams`; `structured_outputs` is a table."""

    prompt: str | Sequence[int]
    params: Mapping[str, Any] = field(default_factory=dict)
    abort_after: int | None = None
    """Abort once so many tokens have come."""


@dataclass(frozen=True)
class Generation:
    """What became of a request."""

    tokens: list[int]
    finish_reason: str
    """`length`, `stop` or `abort`."""
    text: str = ""
    steps: list[int] = field(default_factory=list)
    """Tokens that came together, in order: the accepted counts plus one, where each step was delivered."""
    cached: int = 0
    """Prompt tokens found in the target's prefix cache; 0 from the server."""
    logprobs: list[dict[str, float]] = field(default_factory=list)
