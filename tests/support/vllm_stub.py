"""As much of vLLM's packages as `speculator` and `facts` import, for tests without a vLLM."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

SPECULATOR = "sidedraft.integrations.vllm.speculator"


class SoloGroup:
    """One rank alone; counts what a broadcast would have been."""

    world_size = 1
    rank_in_group = 0

    def broadcast(self, input_: Tensor, src: int = 0) -> Tensor:
        raise AssertionError("one rank has nobody to tell")


class PairGroup:
    """The first of two ranks, or the second, which copies what the first one sent."""

    world_size = 2

    def __init__(self, first: PairGroup | None = None) -> None:
        self.rank_in_group = 0 if first is None else 1
        self._first = first
        self.sent: list[Tensor] = []

    def broadcast(self, input_: Tensor, src: int = 0) -> Tensor:
        assert src == 0
        if self._first is None:
            self.sent.append(input_.clone())
        else:
            assert self._first.sent, "the first rank has not come"
            input_.copy_(self._first.sent.pop(0))
        return input_


class _BaseSpeculator:
    num_query_per_req = 1
    num_extra_query_per_req = 0


def _layers(speculative: Any) -> tuple[int, ...] | None:
    found: tuple[int, ...] | None = speculative.draft_model_config.hf_config.taps
    return found


@contextmanager
def stub_vllm(group: Any, runner_class: type) -> Iterator[None]:
    """Importing `sidedraft.integrations.vllm.speculator` works inside; every vLLM module is gone afterwards.

    Args:
        group: what `get_tp_group` gives.
        runner_class: stands for `GPUModelRunner`.
    """
    modules = {
        "vllm.distributed.parallel_state": {"get_tp_group": lambda: group},
        "vllm.v1.worker.gpu.model_runner": {"GPUModelRunner": runner_class},
        "vllm.v1.worker.gpu.spec_decode.speculator": {"BaseSpeculator": _BaseSpeculator},
        "vllm.v1.worker.gpu.spec_decode.eagle.eagle3_utils": {"get_eagle3_aux_layers_from_config": _layers},
    }
    before = dict(sys.modules)
    for name, attributes in modules.items():
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            path = ".".join(parts[:end])
            if path not in sys.modules:
                module = sys.modules[path] = ModuleType(path)
                module.__path__ = []
                if end > 1:
                    setattr(sys.modules[".".join(parts[: end - 1])], parts[end - 1], module)
        vars(sys.modules[name]).update(attributes)
    try:
        yield
    finally:
        for name in set(sys.modules) - set(before):
            if name.startswith("vllm") or name == SPECULATOR:
                del sys.modules[name]
                package, _, last = name.rpartition(".")
                vars(sys.modules.get(package, sys)).pop(last, None)


def vllm_config(
    *, target: Any, draft: Any, method: str, depth: int, taps: tuple[int, ...] | None, **changes: Any
) -> Any:
    """The parts of a `VllmConfig` that we read; `changes` by their path, such as `model_config__dtype`."""
    config = SimpleNamespace(
        model_config=SimpleNamespace(
            model=str(target),
            revision=None,
            dtype=torch.float32,
            max_model_len=512,
            hf_overrides={},
            get_hidden_size=lambda: 32,
            get_vocab_size=lambda: 97,
        ),
        speculative_config=SimpleNamespace(
            method=method,
            model=str(draft),
            num_speculative_tokens=depth,
            num_speculative_tokens_per_batch_size=None,
            enable_adaptive_verification=False,
            use_heterogeneous_vocab=False,
            draft_sample_method="greedy",
            draft_model_config=SimpleNamespace(
                model=str(draft), revision=None, hf_config=SimpleNamespace(taps=taps)
            ),
        ),
        parallel_config=SimpleNamespace(
            data_parallel_size=1, data_parallel_index=0, prefill_context_parallel_size=1
        ),
        scheduler_config=SimpleNamespace(max_num_seqs=8),
        watermark_config=None,
        instance_id="test",
    )
    for name, value in changes.items():
        *path, last = name.split("__")
        owner = config
        for part in path:
            owner = getattr(owner, part)
        setattr(owner, last, value)
    return config
