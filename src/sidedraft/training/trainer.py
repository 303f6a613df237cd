"""Steps of gradient descent that can be interrupted anywhere and give the same weights."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from sidedraft.training.batches import make_batch
from sidedraft.training.features import Features, save_whole
from sidedraft.training.loss import Loss, batch_loss
from sidedraft.training.module import DSparkModule
from sidedraft.training.recipe import Recipe
from sidedraft.training.schedule import Schedule, learning_rate
from sidedraft.training.vocabulary import DraftVocabulary

_MOMENTS = ("exp_avg", "exp_avg_sq")


class Trainer:
    """AdamW over one module. `step` counts the steps done."""

    def __init__(
        self,
        module: DSparkModule,
        vocabulary: DraftVocabulary,
        sets: Sequence[Features],
        recipe: Recipe,
    ) -> None:
        self.module = module
        self.step = 0
        self.seconds = 0.0
        """Spent in steps, over all processes that worked on this run."""
        self._vocabulary = vocabulary
        self._recipe = recipe
        self._schedule = Schedule(sets, recipe)
        markov = [p for name, p in module.named_parameters() if name.startswith("markov_head.")]
        rest = [p for name, p in module.named_parameters() if not name.startswith("markov_head.")]
        self._optimizer = torch.optim.AdamW(
            [{"params": rest, "factor": 1.0}, {"params": markov, "factor": recipe.markov_rate}],
            betas=(0.9, 0.95),
            weight_decay=recipe.weight_decay,
        )

    def advance(self) -> Loss:
        """One step; the loss is that of before it."""
        recipe, began = self._recipe, time.perf_counter()
        features, trajectories, anchors = self._schedule.draw(self.step)
        batch = make_batch(
            features,
            trajectories,
            anchors,
            depth=recipe.depth,
            mask_token=self.module.sizes.mask_token,
            to_draft=self._vocabulary.to_draft,
        )
        for group in self._optimizer.param_groups:
            group["lr"] = group["factor"] * learning_rate(self.step, recipe)
        loss = batch_loss(self.module, batch, recipe)
        self._optimizer.zero_grad()
        loss.total.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.module.parameters(), recipe.clip)
        self._optimizer.step()
        self.step += 1
        self.seconds += time.perf_counter() - began
        return loss

    def save(self, path: Path) -> None:
        """Weights, moments and step count in one file, whole or not at all."""
        tensors: dict[str, Tensor] = {
            "step": torch.tensor(self.step),
            "seconds": torch.tensor(self.seconds, dtype=torch.float64),
        }
        for name, parameter in self.module.named_parameters():
            tensors[f"weight.{name}"] = parameter.detach()
            for moment in _MOMENTS:
                tensors[f"{moment}.{name}"] = self._optimizer.state[parameter][moment]
        save_whole(path, tensors)

    def load(self, path: Path) -> None:
        """Continue from a file of `save`. Raises ValueError when it belongs to another module."""
        names = {name for name, _ in self.module.named_parameters()}
        with safe_open(path, "pt") as file:
            stored = {key.removeprefix("weight.") for key in file.keys() if key.startswith("weight.")}  # noqa: SIM118
        if stored != names:
            raise ValueError(f"{path}: parameters of another draft; remove the file to start afresh")
        tensors = load_file(path)
        self.step, self.seconds = int(tensors["step"]), float(tensors["seconds"])
        for name, parameter in self.module.named_parameters():
            with torch.no_grad():
                parameter.copy_(tensors[f"weight.{name}"])
            state = {moment: tensors[f"{moment}.{name}"].clone() for moment in _MOMENTS}
            self._optimizer.state[parameter] = {"step": torch.tensor(float(self.step)), **state}
