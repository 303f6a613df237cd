"""All tensors of a draft, checked, wherever they come from: its own files, its target's, or `d2t`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import torch
from torch import Tensor

from sidedraft.drafts.checkpoint import Checkpoint
from sidedraft.drafts.configs import DraftConfig
from sidedraft.drafts.configs.reader import CONFIG_FILE
from sidedraft.drafts.errors import CheckpointError
from sidedraft.drafts.mask_row import MASK_FILE, read_mask_row
from sidedraft.drafts.names import D2T, EMBEDDING, HEAD, canonical_names, expected_shapes
from sidedraft.drafts.shared_rows import embedding_rows, head_rows
from sidedraft.drafts.target_tensors import TargetFacts, read_target_facts, read_target_tensors
from sidedraft.drafts.vocabulary import read_target_ids

MARKOV_OUTPUT = "markov_head.markov_w2.weight"

Progress = Callable[[int, int], None]
"""Called with tensors done and tensors in all."""


@dataclass(frozen=True, slots=True)
class DraftWeights:
    """Everything a draft computes with, as stored (no cast, no fusion), on the CPU."""

    config: DraftConfig
    """As read, with the vocabulary's sizes as they really are."""
    body: dict[str, Tensor]
    """By canonical name, exactly `names.expected_shapes`."""
    embedding: Tensor
    """[vocab_size, hidden_size], before `input_embedding_scale`; the mask token's row is the one to use."""
    head: Tensor
    """[draft_vocab_size, hidden_size]"""
    target_ids: Tensor | None
    """int64 [draft_vocab_size], None when draft ids are target ids."""
    digest: str
    """Of the config and of the tensors the draft ships itself."""


def read_weights(
    config: DraftConfig, draft_dir: Path, target_dir: Path | None, progress: Progress | None = None
) -> DraftWeights:
    """Read a draft's tensors, and from the target's folder those it does not ship.

    Raises CheckpointError for anything missing, left over, misshaped, quantised or contradictory.
    """
    if target_dir is not None:
        facts = read_target_facts(target_dir)
        _check_target(config, draft_dir, facts)
        config = replace(config, target_vocab_size=facts.vocab_size)
    own = _read_own(config, draft_dir, progress)
    digest = _digest(config, own)
    target = None
    if target_dir is not None and (EMBEDDING not in own or HEAD not in own):
        target = read_target_tensors(target_dir)
    target_ids = read_target_ids(own[D2T], config.target_vocab_size, draft_dir) if D2T in own else None
    embedding = embedding_rows(config, draft_dir, own.get(EMBEDDING), target)
    if MASK_FILE in own:
        embedding = embedding.clone()
        embedding[config.mask_token_id] = own[MASK_FILE].to(embedding.dtype)
    weights = DraftWeights(
        config=config,
        body={name: own[name] for name in expected_shapes(config)},
        embedding=embedding,
        head=head_rows(config, draft_dir, own, target, target_ids),
        target_ids=target_ids,
        digest=digest,
    )
    return _trim_padding(weights)


def _read_own(config: DraftConfig, draft_dir: Path, progress: Progress | None) -> dict[str, Tensor]:
    """What the draft's folder holds, by canonical name."""
    shapes = expected_shapes(config)
    optional = {
        EMBEDDING: (config.backbone.vocab_size, config.backbone.hidden_size),
        HEAD: (config.draft_vocab_size, config.backbone.hidden_size),
    }
    own: dict[str, Tensor] = {}
    with Checkpoint(draft_dir) as checkpoint:
        names = canonical_names(draft_dir, checkpoint.names)
        _refuse_unexpected(checkpoint, names, {*shapes, *optional, D2T})
        shapes |= {name: shape for name, shape in optional.items() if name in names}
        for done, (name, shape) in enumerate(shapes.items()):
            own[name] = checkpoint.floats(names.get(name, name), *shape)
            if progress is not None:
                progress(done + 1, len(shapes))
        if D2T in names:
            own[D2T] = checkpoint.integers(names[D2T], config.draft_vocab_size)
    mask_row = read_mask_row(config, draft_dir)
    if mask_row is not None:
        own[MASK_FILE] = mask_row
    return own


def _trim_padding(weights: DraftWeights) -> DraftWeights:
    """Cut off the rows of a head that is padded beyond the target's vocabulary: as ids they would mean
    nothing on the wire."""
    config, size = weights.config, weights.config.target_vocab_size
    if weights.target_ids is not None or config.draft_vocab_size <= size:
        return weights
    body = dict(weights.body)
    if MARKOV_OUTPUT in body:
        body[MARKOV_OUTPUT] = body[MARKOV_OUTPUT][:size]
    return replace(
        weights, config=replace(config, draft_vocab_size=size), body=body, head=weights.head[:size]
    )


def _check_target(config: DraftConfig, draft_dir: Path, facts: TargetFacts) -> None:
    if facts.hidden_size != config.target_hidden_size:
        raise CheckpointError(
            facts.file,
            "hidden_size",
            found=facts.hidden_size,
            expected=f"the width this draft was trained on, {config.target_hidden_size}",
        )
    if config.taps[-1] > facts.layers:
        raise CheckpointError(
            facts.file,
            "num_hidden_layers",
            found=facts.layers,
            expected=f"at least {config.taps[-1]}, the draft's last tap",
        )
    if config.backbone.vocab_size < facts.vocab_size:
        raise CheckpointError(
            draft_dir / CONFIG_FILE,
            "vocab_size",
            found=config.backbone.vocab_size,
            expected=f"the target's, {facts.vocab_size}",
        )


def _refuse_unexpected(checkpoint: Checkpoint, names: dict[str, str], known: set[str]) -> None:
    """A tensor nobody uses means another formula than ours (sinks, gates, extra norms, quantisation)."""
    for name, stored in sorted(names.items()):
        if name not in known:
            raise CheckpointError(
                checkpoint.file(stored),
                f"tensor {stored}",
                found="a tensor that this family has no use for",
                expected="the tensors of config.json's family only",
            )


def _digest(config: DraftConfig, tensors: dict[str, Tensor]) -> str:
    """Hex blake2b-128 of the config and every tensor's name, type, shape and bytes."""
    state = hashlib.blake2b(msgspec.json.encode(config), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        state.update(f"\0{name}\0{tensor.dtype}\0{tuple(tensor.shape)}\0".encode())
        state.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return state.hexdigest()
