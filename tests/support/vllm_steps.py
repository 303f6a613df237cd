"""What vLLM's scheduler gives its runner, step by step; for `Engine.call` of an in-process engine."""

from __future__ import annotations

import time
from typing import Any

_steps: list[dict[str, Any]] = []


def watch(llm: Any) -> None:
    """Note every step from here on. Once an engine."""
    runner = llm.llm_engine.model_executor.driver_worker.worker.model_runner
    execute = runner.execute_model

    def noted(output: Any, *args: Any, **named: Any) -> Any:
        if output.total_num_scheduled_tokens:
            drafts = sum(len(tokens) for tokens in output.scheduled_spec_decode_tokens.values())
            counts = output.num_scheduled_tokens.values()
            _steps.append(
                {
                    "begun": time.perf_counter(),
                    "requests": len(counts),
                    "tokens": sum(counts),
                    "new": len(output.scheduled_new_reqs),
                    "drafts": drafts,
                }
            )
        return execute(output, *args, **named)

    runner.execute_model = noted


def take(llm: Any) -> list[dict[str, Any]]:
    """The steps since the last call: `begun` (seconds), `requests`, `tokens`, `new` requests among them, and
    `drafts`, the draft tokens among the tokens, fillers included."""
    taken = list(_steps)
    _steps.clear()
    return taken
