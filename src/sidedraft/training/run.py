"""From prompts to a draft folder: collect, train, round, export, measure."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Protocol

import msgspec

from sidedraft.training.collect import Source, collect
from sidedraft.training.evaluation import evaluate
from sidedraft.training.export import export, round_weights
from sidedraft.training.features import Features
from sidedraft.training.module import DSparkModule
from sidedraft.training.ngram import ngram_acceptance
from sidedraft.training.prompts import PromptSet
from sidedraft.training.recipe import Recipe
from sidedraft.training.sizes import draft_sizes
from sidedraft.training.trainer import Trainer
from sidedraft.training.vocabulary import DraftVocabulary, choose_vocabulary
from sidedraft.training.warm_start import warm_start

SAVE_EVERY = 50
"""Steps between saved states; an interrupt saves one more."""
MEASURED = 48
"""Trajectories of a training set that are measured; of a held-out set all are."""
NGRAM_LOWS = (1, 2, 3)
"""Shortest suffixes tried for the baseline; the best one counts."""


class Observer(Protocol):
    """Who watches a run."""

    def progress(self, task: str, done: int, total: int, note: str = "") -> None: ...


@dataclass(slots=True)
class Outcome:
    """What a run made and what it measured."""

    folder: Path
    report: dict[str, Any]
    """Plain values for `json.dumps`."""


def run(
    source: Source,
    training: Sequence[PromptSet],
    held_out: Sequence[PromptSet],
    recipe: Recipe,
    *,
    out: Path,
    work: Path,
    observer: Observer,
) -> Outcome:
    """Train a draft for `source` and write it to `out`.

    work: folder of features and training state; a run that was interrupted continues from there. Training is
    over `training` only; `held_out` sets are measured. Raises ValueError for prompts or targets that do not
    fit.
    """
    started = time.perf_counter()
    sets = [_collect(source, one, recipe, work, observer) for one in [*training, *held_out]]
    collected = time.perf_counter() - started
    seen, unseen = sets[: len(training)], sets[len(training) :]
    target = source.target
    vocabulary = choose_vocabulary(seen, target.vocab_size, recipe.draft_vocab)
    module = DSparkModule(
        draft_sizes(target, recipe), target.embedding.detach(), target.head[vocabulary.target_ids].detach()
    )
    warm_start(module, target, seen, recipe.seed)
    trainer = Trainer(module, vocabulary, seen, recipe)
    _train(trainer, recipe, work / f"state-{_fingerprint(seen, recipe)}.safetensors", observer)
    round_weights(module)
    export(module, vocabulary, out)
    report = {
        "recipe": msgspec.to_builtins(recipe),
        "taps": list(target.taps),
        "parameters": sum(p.numel() for p in module.parameters()),
        "bytes": (out / "model.safetensors").stat().st_size,
        "answer_tokens": {one.name: one.answer_tokens for one in sets},
        "seconds": {"collecting": round(collected, 1), "training": round(trainer.seconds, 1)},
        "measured": {
            one.name: _measure(module, vocabulary, one, limit, observer)
            for group, limit in ((seen, MEASURED), (unseen, None))
            for one in group
        },
    }
    return Outcome(out, report)


def _collect(source: Source, prompts: PromptSet, recipe: Recipe, work: Path, observer: Observer) -> Features:
    task = f"answers to {prompts.name}"
    return collect(
        source, prompts, recipe, work / "features", lambda done, total: observer.progress(task, done, total)
    )


def _train(trainer: Trainer, recipe: Recipe, state: Path, observer: Observer) -> None:
    if state.is_file():
        trainer.load(state)
    note = ""
    try:
        while trainer.step < recipe.steps:
            observer.progress("training", trainer.step, recipe.steps, note)
            loss = trainer.advance()
            hits = " ".join(f"{share:.2f}" for share in loss.hits.tolist())
            note = f"loss {loss.total.item():.3f}, hits {hits}"
            if trainer.step % SAVE_EVERY == 0:
                trainer.save(state)
    except KeyboardInterrupt:
        trainer.save(state)
        raise
    trainer.save(state)
    observer.progress("training", recipe.steps, recipe.steps, note)


def _measure(
    module: DSparkModule,
    vocabulary: DraftVocabulary,
    features: Features,
    limit: int | None,
    observer: Observer,
) -> dict[str, Any]:
    task = f"measuring on {features.name}"
    observer.progress(task, 0, 2)
    draft = evaluate(module, vocabulary, features, limit)
    observer.progress(task, 1, 2)
    lookups = {
        low: ngram_acceptance(features, module.sizes.depth, low=low, limit=limit) for low in NGRAM_LOWS
    }
    best = max(lookups, key=lambda low: lookups[low].length)
    observer.progress(task, 2, 2)
    return {
        "prompts": len(features.trajectories[:limit]),
        "draft": draft.to_json(),
        "ngram": lookups[best].to_json() | {"shortest_suffix": best},
    }


def _fingerprint(sets: Sequence[Features], recipe: Recipe) -> str:
    """Names what the weights depend on."""
    digest = blake2b(msgspec.json.encode(recipe), digest_size=6)
    for one in sets:
        digest.update(one.prefix_ids.numpy().tobytes())
        for trajectory in one.trajectories:
            digest.update(trajectory.ids.numpy().tobytes())
    return digest.hexdigest()
