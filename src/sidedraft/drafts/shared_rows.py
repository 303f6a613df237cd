"""Embedding and head of a draft: its own when it ships them, else its target's."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from sidedraft.drafts.configs import DraftConfig
from sidedraft.drafts.configs.reader import CONFIG_FILE
from sidedraft.drafts.errors import CheckpointError
from sidedraft.drafts.names import D2T, EMBEDDING, HEAD
from sidedraft.drafts.target_tensors import TargetTensors


def embedding_rows(
    config: DraftConfig, draft_dir: Path, own: Tensor | None, target: TargetTensors | None
) -> Tensor:
    """[vocab_size, hidden_size]"""
    if own is not None:
        return own
    if target is None:
        raise _needs_target(draft_dir, EMBEDDING)
    _check_width(config, target.embedding, target.embedding_place)
    if config.backbone.vocab_size != target.facts.vocab_size:
        raise CheckpointError(
            draft_dir / CONFIG_FILE,
            "vocab_size",
            found=config.backbone.vocab_size,
            expected=f"{target.facts.vocab_size} rows, as the embedding is the target's",
        )
    return target.embedding


def head_rows(
    config: DraftConfig,
    draft_dir: Path,
    own: dict[str, Tensor],
    target: TargetTensors | None,
    target_ids: Tensor | None,
) -> Tensor:
    """[draft_vocab_size, hidden_size]; a reduced vocabulary picks its rows from the target's head.

    May have fewer rows when the draft's vocabulary is padded beyond the target's.
    """
    if target_ids is None and config.draft_vocab_size < config.target_vocab_size:
        raise CheckpointError(
            draft_dir,
            f"tensor {D2T}",
            found="nothing",
            expected=f"[{config.draft_vocab_size}]: the target's vocabulary has {config.target_vocab_size}",
        )
    if HEAD in own:
        return own[HEAD]
    if config.tie_word_embeddings and EMBEDDING in own and target_ids is None:
        return own[EMBEDDING][: config.draft_vocab_size]
    if target is None:
        raise _needs_target(draft_dir, HEAD)
    _check_width(config, target.head, target.head_place)
    return target.head if target_ids is None else target.head[target_ids]


def _check_width(config: DraftConfig, tensor: Tensor, place: tuple[Path, str]) -> None:
    if tensor.shape[1] != config.backbone.hidden_size:
        raise CheckpointError(
            place[0],
            f"tensor {place[1]}",
            found=f"width {tensor.shape[1]}",
            expected=f"the draft's hidden_size, {config.backbone.hidden_size}",
        )


def _needs_target(draft_dir: Path, name: str) -> CheckpointError:
    return CheckpointError(
        draft_dir,
        f"tensor {name}",
        found="nothing",
        expected="the tensor, or a target's folder to take it from",
    )
