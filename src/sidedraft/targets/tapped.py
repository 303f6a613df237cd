"""A transformers causal LM that shows its residual stream (facts/draft-families.md, fact 1).

Aux id `k` is the residual stream *entering* decoder layer `k`, which is the output of layer `k - 1`; `k = 0`
is the embedding and `k = n_layers` the last layer's output *before* the final norm. Off by one here is the
classic: drafts still run, and accept almost nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM

from sidedraft.targets.row_cache import RowCache

Heads = Literal["all", "last", "none"]
"""Which rows get logits: every row, each request's last valid one, or no row."""


@dataclass(slots=True)
class TargetStep:
    """What one forward of the target gives. Columns >= counts[b] of request b have no meaning."""

    logits: Tensor
    """[B, q, V]; [B, 1, V] when asked for the last row only; [B, 0, V] for none."""
    aux: Tensor
    """[B, q, taps * Ht], taps in ascending order."""
    final: Tensor
    """[B, q, Ht], after the final norm: what the language-model head reads."""


class TappedTarget:
    """The target with its taps. Not thread-safe: one forward at a time."""

    def __init__(self, model: Any, taps: Sequence[int]) -> None:
        """Tap a loaded model. taps: aux ids, strictly ascending, within [0, n_layers]."""
        self.model: nn.Module = model.eval()
        config = model.config
        self.taps = tuple(taps)
        self.layers: int = config.num_hidden_layers
        self.hidden_size: int = config.hidden_size
        self.vocab_size: int = config.vocab_size
        self.max_position: int = config.max_position_embeddings
        if list(taps) != sorted(set(taps)):
            raise ValueError(f"taps must be strictly ascending, got {tuple(taps)}")
        if taps and (taps[0] < 0 or taps[-1] > self.layers):
            raise ValueError(f"taps must lie in 0..{self.layers} for this target, got {tuple(taps)}")
        self._body: Any = model.base_model
        self._head: Any = model.get_output_embeddings()
        # The keyword was renamed within transformers 5.
        names = inspect.signature(self._body.forward).parameters
        self._cache_argument = "cache" if "cache" in names else "past_key_values"
        self._captured: dict[int, Tensor] = {}
        stages = [*self._body.layers, self._body.norm]
        for tap in self.taps:
            stages[tap].register_forward_pre_hook(self._capture(tap), with_kwargs=True)

    @classmethod
    def load(
        cls,
        directory: Path | str,
        taps: Sequence[int],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
        threads: int | None = None,
    ) -> TappedTarget:
        """Load a checkpoint directory; nothing is fetched from anywhere.

        threads: of torch, process-wide, when given.
        """
        if threads is not None:
            torch.set_num_threads(threads)
        path = Path(directory)
        if not (path / "config.json").is_file():
            raise FileNotFoundError(f"target {path}: no config.json there; expected a checkpoint directory")
        model = AutoModelForCausalLM.from_pretrained(
            path, dtype=dtype, local_files_only=True, attn_implementation="sdpa"
        )
        return cls(model.to(device), taps)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def row_width(self) -> int:
        """Values of one aux row: taps x hidden size."""
        return len(self.taps) * self.hidden_size

    def parameter(self, name: str) -> Tensor:
        """One of the model's weights, named without the `model.` before it. Raises AttributeError."""
        found: Tensor = self._body.get_parameter(name)
        return found

    @property
    def embedding(self) -> Tensor:
        """[V, Ht], the input embedding."""
        weight: Tensor = self._body.get_input_embeddings().weight
        return weight

    @property
    def head(self) -> Tensor:
        """[V, Ht], the language-model head; the embedding itself when the two are tied."""
        weight: Tensor = self._head.weight
        return weight

    @property
    def stop_tokens(self) -> frozenset[int]:
        """Tokens that end an answer, as the checkpoint states them; none when it does not."""
        for config in (self.model.generation_config, self.model.config):
            found = getattr(config, "eos_token_id", None)
            if found is not None:
                return frozenset([found] if isinstance(found, int) else found)
        return frozenset()

    def new_cache(self, batch: int, capacity: int) -> RowCache:
        """An empty cache for `batch` requests of at most `capacity` positions."""
        return RowCache(self.layers, batch, capacity)

    @torch.inference_mode()
    def forward(
        self, cache: RowCache, tokens: Tensor, lengths: Tensor, counts: Tensor, *, heads: Heads = "all"
    ) -> TargetStep:
        """Run `counts[b]` new rows of each request after its first `lengths[b]` rows.

        tokens: int64 [B, q], row j of request b at position lengths[b] + j; lengths, counts: int64 [B].
        Rows of the cache at lengths[b] and beyond are overwritten: a rejected suffix is dropped by passing
        a smaller length. A request with counts[b] = 0 is left as it is.
        """
        width = tokens.shape[1]
        positions, visible = cache.place(lengths, counts, width)
        out = self._body(
            input_ids=tokens,
            position_ids=positions,
            attention_mask=visible,
            use_cache=True,
            **{self._cache_argument: cache},
        )
        final: Tensor = out.last_hidden_state
        aux = torch.cat([self._captured[tap] for tap in self.taps], -1) if self.taps else final[..., :0]
        self._captured.clear()
        return TargetStep(self._logits(final, counts, heads), aux, final)

    def _logits(self, final: Tensor, counts: Tensor, heads: Heads) -> Tensor:
        if heads == "all":
            read = final
        elif heads == "last":
            last = (counts - 1).clamp_min(0)
            read = final[torch.arange(len(last), device=last.device), last][:, None]
        else:
            read = final[:, :0]
        logits: Tensor = self._head(read)
        return logits

    def _capture(self, tap: int) -> Any:
        def hook(_: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:
            self._captured[tap] = args[0] if args else kwargs["hidden_states"]

        return hook
