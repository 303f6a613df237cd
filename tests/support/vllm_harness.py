"""vLLM on a CPU, in every process layout, for tests: `with started(Layout.TP2, target) as engine: ...`.

The engine runs in a process of its own, with the Python that `vllm_python` finds, so that the test process
needs no vLLM. Every wait is bounded, and leaving the context leaves no process behind.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import pytest

from support.vllm_processes import PATIENCE, Child, Server
from support.vllm_requests import Generation, Request, VllmError

__all__ = [
    "Engine",
    "Generation",
    "Layout",
    "Request",
    "VllmError",
    "arguments",
    "environment",
    "needs_vllm",
    "smollm2",
    "started",
    "vllm_python",
    "vllm_sources",
]

ROOT = Path(__file__).resolve().parents[2]
SUPPORT = Path(__file__).resolve().parent
VARIABLE = "SIDEDRAFT_VLLM_PYTHON"
"""Names another Python with a vLLM than that of `.venv/vllm`."""

START = 300.0
"""Seconds until a start counts as failed; a quiet machine needs 15 to 60."""


class Layout(StrEnum):
    """Which processes vLLM consists of."""

    IN_PROCESS = "in-process"
    """Scheduler and worker with the front end in one: `call` reaches everything."""
    MULTI_PROCESS = "multi-process"
    """The engine core, with its worker, in a process of its own."""
    SERVER = "openai-server"
    """`vllm serve`, spoken to by HTTP."""
    TP2 = "tensor-parallel"
    """Two workers of half the target each. SmolLM2 (nine heads) does not divide; `agreeing_pair` does."""


class Engine(Protocol):
    """A running vLLM."""

    start_seconds: float
    generate_seconds: float
    """Of the last `generate`."""

    def generate(self, requests: Sequence[Request], *, timeout: float = PATIENCE) -> list[Generation]:
        """Run all at once; in the order of the requests."""

    def metrics(self) -> dict[str, Any]:
        """vLLM's Prometheus metrics by name: a number, or a list over positions."""

    def call(self, function: str, /, **arguments: Any) -> Any:
        """Call `module:name` with the `LLM` object; `module` is found as in a test. Not on a server."""

    def log(self) -> str:
        """All that its processes printed so far."""


def vllm_python() -> Path | None:
    """A Python that has a vLLM, or None."""
    named = os.environ.get(VARIABLE)
    python = Path(named) if named else ROOT / ".venv" / "vllm" / "bin" / "python"
    return python if python.exists() else None


def vllm_sources() -> Path | None:
    """The package folder of that vLLM, found without importing it."""
    python = vllm_python()
    found = None if python is None else next(python.parents[1].glob("lib/python*/site-packages/vllm"), None)
    return found if found is not None and (found / "version.py").is_file() else None


needs_vllm = pytest.mark.skipif(
    vllm_sources() is None,
    reason=f"no vLLM: .venv/vllm is missing (`make vllm` says why) and {VARIABLE} names no other",
)


def smollm2() -> Path:
    """The real target, from the user's cache; skips the test where it cannot be had."""
    from sidedraft.targets import smollm2

    try:
        return smollm2.obtain()
    except smollm2.TargetUnavailableError as error:
        pytest.skip(str(error))


def environment(
    layout: Layout, patches: Sequence[str] = (), extra: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Variables of vLLM's processes: ours, less what configures Sidedraft, and what a CPU needs.

    `patches`: `greedy`, `async` (support/triton_cpu/README.md).
    """
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("SIDEDRAFT_", "VLLM_"))}
    path = [str(SUPPORT / "triton_cpu"), str(SUPPORT.parent), str(ROOT / "src")]
    needed = {
        "PYTHONPATH": os.pathsep.join(path),
        "DRAFT_TEST_PATCHES": ",".join(patches),
        "TRITON_INTERPRET": "1",
        "TORCH_COMPILE_DISABLE": "1",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_CPU_CI_ENV": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0" if layout is Layout.IN_PROCESS else "1",
    }
    if layout is Layout.TP2:
        needed["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
    return ours | needed | dict(extra or {})


def arguments(layout: Layout, target: Path, engine: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Keyword arguments of `LLM` for a small engine; `engine` overrides."""
    defaults: dict[str, Any] = {
        "model": str(target),
        "dtype": "float32",
        "max_model_len": 512,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 256,
        "block_size": 32,
        "enforce_eager": True,
        "disable_log_stats": False,
        "skip_tokenizer_init": not (target / "tokenizer.json").is_file(),
    }
    if layout is Layout.TP2:
        defaults["tensor_parallel_size"] = 2
    return defaults | dict(engine or {})


@contextlib.contextmanager
def started(
    layout: Layout,
    target: Path,
    *,
    engine: Mapping[str, Any] | None = None,
    environ: Mapping[str, str] | None = None,
    patches: Sequence[str] = ("greedy",),
    timeout: float = START,
) -> Iterator[Engine]:
    """A running vLLM, stopped on leaving; raises VllmError when it does not start.

    Args:
        engine: keyword arguments of `LLM`, over `arguments`: `speculative_config`, `additional_config`, ...
        environ: variables, over `environment`: `SIDEDRAFT_ADDRESS`, ...
        patches: see `environment`.
    """
    python = vllm_python()
    if python is None:
        pytest.skip(f"no vLLM at .venv/vllm, and {VARIABLE} is not set")
    kind = Server if layout is Layout.SERVER else Child
    with tempfile.TemporaryDirectory(prefix="vllm-") as folder:
        process = kind(python, Path(folder), environment(layout, patches, environ))
        try:
            process.start(arguments(layout, target, engine), timeout)
            yield process
        finally:
            process.close()
