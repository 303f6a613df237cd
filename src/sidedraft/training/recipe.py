"""Everything that decides a training run, besides target and prompts."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sidedraft.settings import Settings, SettingsError

Count = Annotated[int, Meta(ge=1, description="at least 1")]


class Recipe(Settings, frozen=True, kw_only=True):
    """Defaults are the recipe that docs/training.md explains. Building one with a bad value raises
    `SettingsError`."""

    taps: tuple[int, ...] = ()
    """Aux ids; empty: `count` of them spread over the target as the draft formats do by default."""
    tap_count: Count = 5
    layers: Count = 2
    depth: Annotated[int, Meta(ge=1, le=64, description="a depth from 1 to 64")] = 5
    """Draft tokens a block, all of them trained."""
    markov_rank: Count = 32
    draft_vocab: Count = 6144
    """Tokens the draft can propose: those seen most, filled up with the lowest ids."""

    steps: Count = 600
    sequences: Count = 8
    """Trajectories a step."""
    anchors: Count = 16
    """Random anchors a trajectory and step."""
    easy_share: Annotated[float, Meta(gt=0, le=1, description="above 0, at most 1")] = 0.25
    """How often an anchor is drawn whose next token n-gram lookup finds, to others."""
    learning_rate: Annotated[float, Meta(gt=0, description="above 0")] = 1e-3
    markov_rate: Annotated[float, Meta(gt=0, description="above 0")] = 5.0
    """Factor on the learning rate of the Markov head, which starts from noise."""
    warmup: Annotated[int, Meta(ge=0, description="at least 0")] = 30
    weight_decay: Annotated[float, Meta(ge=0, description="at least 0")] = 0.01
    clip: Annotated[float, Meta(gt=0, description="above 0")] = 1.0
    """Greatest norm of the gradient."""
    position_decay: Annotated[float, Meta(gt=0, description="above 0")] = 4.0
    """Row j of a block counts exp(-j / position_decay): an early miss ends the block."""
    confidence_weight: Annotated[float, Meta(ge=0, description="at least 0")] = 0.1
    seed: Annotated[int, Meta(ge=0, description="at least 0")] = 0

    max_new_tokens: Count = 150
    """Where the target's answers are cut."""
    decode_batch: Count = 32
    """Prompts the target answers side by side; also the trajectories of a feature file."""

    def check(self) -> None:
        if list(self.taps) != sorted(set(self.taps)):
            raise SettingsError("taps", self.taps, "strictly ascending aux ids")
        if self.max_new_tokens < 2:
            raise SettingsError(
                "max_new_tokens", self.max_new_tokens, "at least 2, or nothing can be drafted"
            )

    def taps_for(self, layers: int) -> tuple[int, ...]:
        """The taps for a target of that many layers.

        The draft formats' default spreads layer outputs evenly from 1 to n - 3 (one tap: the middle);
        an aux id is one more than the layer whose output it is.
        """
        if self.taps:
            return self.taps
        if self.tap_count == 1:
            return (layers // 2 + 1,)
        outputs = [round(1 + i * (layers - 4) / (self.tap_count - 1)) for i in range(self.tap_count)]
        if outputs != sorted(set(outputs)) or outputs[0] < 0:
            raise SettingsError("tap_count", self.tap_count, f"fewer taps for a target of {layers} layers")
        return tuple(output + 1 for output in outputs)
