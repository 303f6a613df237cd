"""Features of a prompt set, made once and kept in a folder; an interrupted collection continues."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import torch
from safetensors.torch import load_file

from sidedraft.targets.facts import read_target_facts
from sidedraft.targets.tapped import TappedTarget
from sidedraft.training.decode import PrefixedDecoder
from sidedraft.training.features import Features, load_trajectories, save_trajectories, save_whole
from sidedraft.training.prompts import PromptSet
from sidedraft.training.recipe import Recipe

Progress = Callable[[int, int], None]
"""Called with prompts done and prompts in all."""

Encode = Callable[[str], list[int]]
"""Text in which special tokens are spelled out, to token ids."""


@dataclass(frozen=True, slots=True)
class Source:
    """The model that answers."""

    directory: Path
    target: TappedTarget
    encode: Encode


def collect(
    source: Source, prompts: PromptSet, recipe: Recipe, folder: Path, progress: Progress = lambda *_: None
) -> Features:
    """The target's greedy answers and aux states for `prompts`, from `folder` where they are there already.

    Every `recipe.decode_batch` prompts make one file. Raises ValueError for a prompt the target cannot run.
    """
    prefix, own = _encode(source, prompts, recipe)
    home = folder / f"{prompts.name}-{_fingerprint(source, prompts, recipe)}"
    home.mkdir(parents=True, exist_ok=True)
    decoder: PrefixedDecoder | None = None
    trajectories = []
    for at in range(0, len(own), recipe.decode_batch):
        progress(at, len(own))
        path = home / f"{at:06d}.safetensors"
        if not path.is_file():
            # The prefix is run only when an answer is missing.
            decoder = decoder or PrefixedDecoder(source.target, prefix, source.target.stop_tokens)
            save_whole(home / "prefix.safetensors", {"aux": decoder.prefix_aux})
            batch = own[at : at + recipe.decode_batch]
            save_trajectories(path, decoder.answer(batch, recipe.max_new_tokens))
        trajectories += load_trajectories(path)
    progress(len(own), len(own))
    aux = load_file(home / "prefix.safetensors")["aux"]
    return Features(prompts.name, torch.tensor(prefix), aux, trajectories)


def _encode(source: Source, prompts: PromptSet, recipe: Recipe) -> tuple[list[int], list[list[int]]]:
    """Token ids of the shared prefix and of each prompt's own part."""
    prefix = source.encode(prompts.prefix)
    own = []
    for number, prompt in enumerate(prompts.prompts):
        ids = source.encode(prompts.prefix + prompt + prompts.suffix)
        if ids[: len(prefix)] != prefix or len(ids) == len(prefix):
            raise ValueError(
                f"prompts {prompts.name}, prompt {number}: its text joins the prefix's last token; "
                "expected a prefix that ends with a special token or a line break"
            )
        if len(ids) + recipe.max_new_tokens > source.target.max_position:
            raise ValueError(
                f"prompts {prompts.name}, prompt {number}: {len(ids)} tokens and {recipe.max_new_tokens} "
                f"new ones; expected at most {source.target.max_position}"
            )
        own.append(ids[len(prefix) :])
    return prefix, own


def _fingerprint(source: Source, prompts: PromptSet, recipe: Recipe) -> str:
    """Names what the features depend on. Of the weights only name, size and date are looked at."""
    facts = read_target_facts(source.directory, source.target.taps)
    weights = sorted(
        (path.name, path.stat().st_size, path.stat().st_mtime_ns)
        for path in source.directory.glob("*.safetensors")
    )
    texts = (prompts.prefix, prompts.suffix, prompts.prompts)
    parts = (repr(facts), weights, texts, recipe.max_new_tokens, recipe.decode_batch)
    return blake2b(json.dumps(parts).encode(), digest_size=6).hexdigest()
