"""What a draft server serves, as far as a verifier without a target has to know it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from sidedraft.bench.errors import BenchError
from sidedraft.drafts.configs import read_config
from sidedraft.targets.facts import read_target_facts
from sidedraft.wire.messages import DraftFacts, TargetFacts


@dataclass(frozen=True, slots=True)
class Served:
    """The facts that a hello has to match."""

    target: TargetFacts
    draft: DraftFacts
    max_position: int
    """Greatest position of an anchor."""
    folder: Path | None = None
    """Where the draft's context projection can be read, for projected rows."""


class _Draft(msgspec.Struct, frozen=True):
    layout: str
    taps: tuple[int, ...]
    vocab_size: int


class _Target(msgspec.Struct, frozen=True):
    hidden_size: int
    model_digest: str | None
    vocab_digest: str | None


class _Limits(msgspec.Struct, frozen=True):
    max_depth: int
    max_position: int


class _Status(msgspec.Struct, frozen=True):
    """Of `/v1/status`, the part that is needed; it is there once the model is loaded."""

    family: str
    draft: _Draft
    target: _Target
    limits: _Limits


def from_folder(draft: Path, target: Path | None = None) -> Served:
    """From a draft's folder or a bundle; with the target's folder, its digests too.

    Raises CheckpointError, FileNotFoundError and ValueError for what is in the folders.
    """
    config = read_config(draft)
    if target is None:
        facts = TargetFacts(
            taps=config.taps, hidden_size=config.target_hidden_size, vocab_size=config.target_vocab_size
        )
    else:
        facts = read_target_facts(target, config.taps)
    return Served(
        target=facts,
        draft=DraftFacts(family=config.family, layout=config.layout.value, max_depth=config.max_depth),
        max_position=config.backbone.max_position - 1,
        folder=draft,
    )


def from_status(body: bytes) -> Served:
    """From the JSON of a server's `/v1/status`. Raises BenchError: its model is not loaded, or it is none."""
    try:
        status = msgspec.json.decode(body, type=_Status)
    except msgspec.MsgspecError as error:
        raise BenchError(f"the server's status does not say what it serves: {error}") from error
    return Served(
        target=TargetFacts(
            taps=status.draft.taps,
            hidden_size=status.target.hidden_size,
            vocab_size=status.draft.vocab_size,
            model_digest=status.target.model_digest,
            vocab_digest=status.target.vocab_digest,
        ),
        draft=DraftFacts(family=status.family, layout=status.draft.layout, max_depth=status.limits.max_depth),
        max_position=status.limits.max_position,
    )
