"""The two tensors a draft borrows from its target, and the few facts of the target's config beside them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from torch import Tensor

from sidedraft.drafts.checkpoint import Checkpoint
from sidedraft.drafts.configs.fields import read_json
from sidedraft.drafts.configs.reader import CONFIG_FILE
from sidedraft.drafts.errors import CheckpointError

PREFIXES = (
    "model.",
    "language_model.model.",
    "model.language_model.",
    "model.language_model.model.",
    "language_model.",
    "",
)
"""Where text models and the language models inside vision models keep `embed_tokens`."""

HEAD_PREFIXES = ("", "language_model.", "model.language_model.", "model.")


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """Sizes from a target's config.json (its `text_config` when it has one)."""

    file: Path
    hidden_size: int
    vocab_size: int
    layers: int
    tied: bool | None
    """`tie_word_embeddings`; None when the config does not say."""


@dataclass(frozen=True, slots=True)
class TargetTensors:
    """Embedding and head as stored; the same tensor when they are tied."""

    facts: TargetFacts
    embedding: Tensor
    """[vocab_size, hidden_size]"""
    head: Tensor
    """[vocab_size, hidden_size]"""
    embedding_place: tuple[Path, str]
    """File and name, for errors."""
    head_place: tuple[Path, str]


def read_target_facts(target_dir: Path) -> TargetFacts:
    """Read the target's config.json alone."""
    top = read_json(target_dir / CONFIG_FILE)
    fields = top.section("text_config").over(top)
    return TargetFacts(
        file=top.file,
        hidden_size=fields.integer("hidden_size", low=1),
        vocab_size=fields.integer("vocab_size", low=1),
        layers=fields.integer("num_hidden_layers", low=1),
        tied=fields.flag_or("tie_word_embeddings", None),
    )


def read_target_tensors(target_dir: Path) -> TargetTensors:
    """Read embedding and lm_head; nothing else of the target is touched.

    Raises CheckpointError when they are missing, quantised, or of another shape than the config says.
    """
    facts = read_target_facts(target_dir)
    with Checkpoint(target_dir) as checkpoint:
        name = _find(checkpoint, "embed_tokens", PREFIXES)
        if name is None:
            raise _missing(checkpoint, "embed_tokens.weight")
        embedding = _rows(checkpoint, name, facts)
        embedding_place = checkpoint.file(name), name
        head_name = _find(checkpoint, "lm_head", HEAD_PREFIXES)
        if head_name is not None:
            head = _rows(checkpoint, head_name, facts)
            return TargetTensors(
                facts, embedding, head, embedding_place, (checkpoint.file(head_name), head_name)
            )
        if facts.tied is False:
            raise _missing(checkpoint, "lm_head.weight")
        return TargetTensors(facts, embedding, embedding, embedding_place, embedding_place)


def _find(checkpoint: Checkpoint, what: str, prefixes: tuple[str, ...]) -> str | None:
    """The tensor's full name. A quantised one has companions (scales, packed words) in its place or beside
    it, and is refused here rather than read as numbers it does not mean."""
    for prefix in prefixes:
        name = f"{prefix}{what}.weight"
        companions = sorted(
            other for other in checkpoint.names if other.startswith(f"{prefix}{what}.") and other != name
        )
        if companions:
            raise CheckpointError(
                checkpoint.file(companions[0]),
                f"tensor {name}",
                found=f"{companions[0]}, a quantised form",
                expected="a weight that is not quantised",
            )
        if name in checkpoint.names:
            return name
    return None


def _rows(checkpoint: Checkpoint, name: str, facts: TargetFacts) -> Tensor:
    """[vocab_size, hidden_size]; padding rows after the vocabulary are cut off."""
    weight = checkpoint.floats(name, None, facts.hidden_size)
    if len(weight) < facts.vocab_size:
        raise CheckpointError(
            checkpoint.file(name),
            f"tensor {name}",
            found=f"{len(weight)} rows",
            expected=f"vocab_size ({facts.vocab_size}) rows",
        )
    return weight[: facts.vocab_size]


def _missing(checkpoint: Checkpoint, what: str) -> CheckpointError:
    return CheckpointError(
        checkpoint.folder, f"tensor {what}", found="nothing", expected="the target's, under any usual prefix"
    )
