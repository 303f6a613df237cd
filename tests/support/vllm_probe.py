"""Looks into a vLLM that runs in one process: functions for `Engine.call`."""

from __future__ import annotations

import sys
from typing import Any


def runner(llm: Any) -> Any:
    """The model runner."""
    return llm.llm_engine.model_executor.driver_worker.worker.model_runner


def scheduler(llm: Any) -> Any:
    return llm.llm_engine.engine_core.engine_core.scheduler


def types(llm: Any) -> dict[str, str]:
    """What the parts are that the plugin could have replaced."""
    parts = {
        "runner": runner(llm),
        "speculator": runner(llm).speculator,
        "states": runner(llm).req_states,
        "scheduler": scheduler(llm),
        "lookup": scheduler(llm).dynamic_sd_lookup,
        "config": llm.llm_engine.vllm_config,
    }
    return {name: f"{type(part).__module__}.{type(part).__qualname__}" for name, part in parts.items()}


def modules(llm: Any) -> list[str]:
    """Everything that was imported."""
    return sorted(sys.modules)
