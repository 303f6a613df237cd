"""What a run of the reference verifier can be told."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sidedraft.settings import Settings


class Options(Settings, frozen=True, kw_only=True):
    """How to generate. Building one with a bad value raises `SettingsError`."""

    max_new_tokens: Annotated[int, Meta(ge=1, description="at least 1")] = 64
    depth: Annotated[int, Meta(ge=0, le=64, description="a depth from 0 to 64")] = 4
    """Draft tokens wanted a step."""
    temperature: Annotated[float, Meta(ge=0, le=100, description="a temperature from 0 to 100")] = 0.0
    """0 is greedy."""
    seed: Annotated[int, Meta(ge=0, description="at least 0")] = 0
    """The i-th prompt samples from the seed (seed, i), whatever stands beside it in a batch."""
    batch: Annotated[int, Meta(ge=1, le=4096, description="a count from 1 to 4096")] = 8
    """Prompts run side by side."""
    chunk: Annotated[int, Meta(ge=1, description="at least 1")] = 512
    """Prompt tokens run in one forward, at most."""
    eos: frozenset[int] = frozenset()
    """Tokens that end an output; the ending token belongs to it."""
