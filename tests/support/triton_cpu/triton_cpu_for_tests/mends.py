"""What the interpreter and the CPU platform need before tests can drive vLLM; see the README beside."""

from __future__ import annotations

import itertools
import os
from types import ModuleType
from typing import Any

import numpy as np
import torch

from sidedraft.integrations.vllm.late import when_imported

PATCHES = {"greedy", "async", "unsupported"}
_done: list[bool] = []


def register() -> None:
    """Entry point; acts on modules as they are imported, once a process."""
    if _done or os.environ.get("TRITON_INTERPRET") != "1":
        return
    _done.append(True)
    when_imported("triton.runtime.interpreter", _mend_masks)
    when_imported("triton.language.extra.libdevice", _mend_log1p)
    wanted = set(filter(None, os.environ.get("DRAFT_TEST_PATCHES", "").split(",")))
    if not wanted <= PATCHES:
        raise ValueError(
            f"DRAFT_TEST_PATCHES: {sorted(wanted - PATCHES)} unknown; expected {sorted(PATCHES)}"
        )
    if "greedy" in wanted:
        when_imported("vllm.v1.worker.gpu.sample.sampler", _choose_greedily)
        when_imported("vllm.v1.worker.gpu.spec_decode.rejection_sampler", _verify_greedily)
    if "unsupported" in wanted:
        when_imported("vllm", _claim_another_version)
    if "async" in wanted:
        when_imported("vllm.platforms.cpu", _schedule_asynchronously)


def _mend_masks(interpreter: ModuleType) -> None:
    """Kernels give masks of integers too; the interpreter's load and store take booleans only."""
    builder = interpreter.InterpreterBuilder
    load, store = builder.create_masked_load, builder.create_masked_store

    def boolean(mask: Any) -> Any:
        return mask if mask.data.dtype == np.bool_ else interpreter.TensorHandle(mask.data != 0, mask.dtype)

    def create_masked_load(self: Any, ptrs: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        return load(self, ptrs, boolean(mask), *rest, **named)

    def create_masked_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        return store(self, ptrs, value, boolean(mask), *rest, **named)

    builder.create_masked_load = create_masked_load
    builder.create_masked_store = create_masked_store


def _mend_log1p(libdevice: ModuleType) -> None:
    """Interpreted, it is an empty function, which returns None."""

    def log1p(arg0: Any, _semantic: Any = None) -> Any:
        from triton.language import core
        from triton.runtime.interpreter import TensorHandle

        handle = arg0.handle
        return core.tensor(TensorHandle(np.log1p(handle.data), handle.dtype), arg0.type)

    libdevice.log1p = log1p  # type: ignore[attr-defined]


def _choose_greedily(sampler: ModuleType) -> None:
    original = sampler.gumbel_sample

    def gumbel_sample(
        logits: torch.Tensor,  # [tokens, vocabulary]
        expanded_idx_mapping: torch.Tensor,  # [tokens]
        temperature: torch.Tensor,  # [slots]
        *rest: Any,
        **named: Any,
    ) -> Any:
        slots = expanded_idx_mapping.clamp_min(0).long()
        if named.get("logits_cache") is None and bool((temperature[slots] == 0).all()):
            return logits.argmax(-1)
        return original(logits, expanded_idx_mapping, temperature, *rest, **named)

    sampler.gumbel_sample = gumbel_sample  # type: ignore[attr-defined]


def _verify_greedily(module: ModuleType) -> None:
    original = module.rejection_sample

    def rejection_sample(
        target_logits: torch.Tensor,  # [logits, vocabulary]
        draft_logits: torch.Tensor | None,
        draft_sampled: torch.Tensor,  # [logits]: of each request the anchor, then its drafts
        cu_num_logits: torch.Tensor,  # [requests + 1]
        pos: torch.Tensor,
        idx_mapping: torch.Tensor,  # [requests]
        expanded_idx_mapping: torch.Tensor,
        expanded_local_pos: torch.Tensor,
        temperature: torch.Tensor,  # [slots]
        seed: torch.Tensor,
        num_speculative_steps: int,
        *rest: Any,
        **named: Any,
    ) -> Any:
        if bool((temperature[idx_mapping.long()] != 0).any()) or named.get("contexts") is not None:
            return original(
                target_logits,
                draft_logits,
                draft_sampled,
                cu_num_logits,
                pos,
                idx_mapping,
                expanded_idx_mapping,
                expanded_local_pos,
                temperature,
                seed,
                num_speculative_steps,
                *rest,
                **named,
            )
        best = target_logits.argmax(-1)
        bounds = cu_num_logits.tolist()
        sampled = best.new_zeros(len(bounds) - 1, num_speculative_steps + 1)
        counts = torch.empty(len(bounds) - 1, dtype=torch.int32)
        for row, (start, end) in enumerate(itertools.pairwise(bounds)):
            agree = (draft_sampled[start + 1 : end] == best[start : end - 1]).int()
            kept = int(agree.cumprod(0).sum()) + 1
            sampled[row, :kept] = best[start : start + kept]
            counts[row] = kept
        return sampled, counts

    module.rejection_sample = rejection_sample  # type: ignore[attr-defined]


def _claim_another_version(vllm: ModuleType) -> None:
    vllm.__version__ = "0.99.0"  # type: ignore[attr-defined]


def _schedule_asynchronously(cpu: ModuleType) -> None:
    original = cpu.CpuPlatform.check_and_update_config.__func__

    def check_and_update_config(cls: Any, vllm_config: Any) -> None:
        original(cls, vllm_config)
        vllm_config.scheduler_config.async_scheduling = True

    cpu.CpuPlatform.check_and_update_config = classmethod(check_and_update_config)
