"""From settings to an engine that can serve: device, memory plan, weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from sidedraft.device import DeviceError, resolve_device, resolve_dtype
from sidedraft.drafts import CheckpointError, Draft, load_draft, read_config
from sidedraft.engine import Engine, MemoryPlan, plan_memory
from sidedraft.server.ending import StartError
from sidedraft.server.report import Report
from sidedraft.settings import ServerSettings, SettingsError, format_bytes
from sidedraft.targets.facts import read_target_facts
from sidedraft.wire.messages import TargetFacts


@dataclass(frozen=True, slots=True)
class Loaded:
    """Everything heavy. `target` is the target as far as the server knows it."""

    draft: Draft
    engine: Engine
    target: TargetFacts


def load(settings: ServerSettings, report: Report, check: Callable[[], None]) -> Loaded:
    """Print the memory plan, then read the weights and allocate what was planned.

    `check` is called often and may raise to break off. Raises `StartError` for whatever the operator has to
    change.
    """
    try:
        return _load(settings, report, check)
    except (CheckpointError, DeviceError, SettingsError) as error:
        raise StartError(str(error)) from error
    except (MemoryError, torch.OutOfMemoryError) as error:
        raise StartError(f"kv_memory: {format_bytes(settings.kv_memory)}: out of memory: {error}") from error


def _load(settings: ServerSettings, report: Report, check: Callable[[], None]) -> Loaded:
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    device = resolve_device(settings.device)
    dtype = resolve_dtype(settings.dtype, device)
    folder = Path(settings.bundle or settings.draft or "")
    shape = read_config(folder, vllm_compat=settings.vllm_compat).shape
    part = settings.engine()
    plan = plan_memory(
        shape,
        dtype,
        kv_memory=part.kv_memory,
        max_requests=part.max_requests,
        max_depth=part.max_depth,
        window=part.window,
        block_size=part.block_size,
        ingest_bytes=part.ingest_slice,
    )
    check()
    report.note(_describe(plan, device, dtype, settings.wire().bulk_credit + settings.session_bytes))

    def progress(done: int, total: int) -> None:
        check()
        report.progress("loading", done, total)

    target = None if settings.target is None else Path(settings.target)
    draft = load_draft(
        folder, target, dtype=dtype, device=device, progress=progress, vllm_compat=settings.vllm_compat
    )
    check()
    return Loaded(draft, Engine(draft, plan, retain=settings.retain), _target(draft, target))


def _describe(plan: MemoryPlan, device: torch.device, dtype: torch.dtype, messages: int) -> str:
    """`messages`: bytes of one verifier's that may wait."""
    return "\n".join(
        [
            f"memory plan ({device}, {name_of(dtype)}):",
            str(plan),
            f"{format_bytes(messages):>12}  besides: messages of one verifier, at most",
        ]
    )


def _target(draft: Draft, folder: Path | None) -> TargetFacts:
    """Sizes as the draft has them; digests from the target's folder, when there is one."""
    shape = draft.shape
    known = None if folder is None else read_target_facts(folder, shape.taps)
    return TargetFacts(
        taps=shape.taps,
        hidden_size=shape.target_hidden_size,
        vocab_size=shape.vocab_size,
        model_digest=None if known is None else known.model_digest,
        vocab_digest=None if known is None else known.vocab_digest,
    )


def name_of(dtype: torch.dtype) -> str:
    """`float32` rather than `torch.float32`."""
    return str(dtype).removeprefix("torch.")
