"""vLLM on a CPU, in every process layout, for tests: `with started(Layout.TP2, target) as engine: ...`.

The engine runs in a process of its own, with the Python that `vllm_python` finds, so that the test process
needs no vLLM. Every wait is bounded, and leaving the context leaves no process behind.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Protocol

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUPPORT = Path(__file__).resolve().parent
VARIABLE = "SIDEDRAFT_VLLM_PYTHON"
"""Names another Python with a vLLM than that of `.venv/vllm`."""

START = 300.0
"""Seconds until a start counts as failed; a quiet machine needs 15 to 60."""
PATIENCE = 180.0
"""Seconds until any other command does."""
LINGER = 20.0
"""Seconds that an engine gets to stop by itself."""


class Layout(StrEnum):
    """Which processes vLLM consists of."""

    IN_PROCESS = "in-process"
    """Scheduler and worker with the front end in one: `call` reaches everything."""
    MULTI_PROCESS = "multi-process"
    """The engine core, with its worker, in a process of its own."""
    SERVER = "openai-server"
    """`vllm serve`, spoken to by HTTP."""
    TP2 = "tensor-parallel"
    """Two workers of half the target each. SmolLM2's nine heads do not divide; `tiny_pair`'s do."""


class VllmError(Exception):
    """vLLM did not do what it was asked to; the message ends with the tail of its log."""


@dataclass(frozen=True)
class Request:
    """One prompt. `params` are those of `SamplingParams`; `structured_outputs` is a table."""

    prompt: str | Sequence[int]
    params: Mapping[str, Any] = field(default_factory=dict)
    abort_after: int | None = None
    """Abort once so many tokens have come."""


@dataclass(frozen=True)
class Generation:
    """What became of a request."""

    tokens: list[int]
    finish_reason: str
    """`length`, `stop` or `abort`."""
    text: str = ""
    steps: list[int] = field(default_factory=list)
    """Tokens that came together, in order: the accepted counts plus one, where each step was delivered."""
    cached: int = 0
    """Prompt tokens found in the target's prefix cache; 0 from the server."""
    logprobs: list[dict[str, float]] = field(default_factory=list)


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
    kind = _Server if layout is Layout.SERVER else _Child
    with tempfile.TemporaryDirectory(prefix="vllm-") as folder:
        process = kind(python, Path(folder), environment(layout, patches, environ))
        try:
            process.start(arguments(layout, target, engine), timeout)
            yield process
        finally:
            process.close()


class _Process:
    """The child and its process group; its output goes to a file."""

    def __init__(self, python: Path, folder: Path, environ: Mapping[str, str]) -> None:
        self.start_seconds = 0.0
        self.generate_seconds = 0.0
        self._python = python
        self._folder = folder
        self._environ = environ
        self._log = folder / "log"
        self._process: subprocess.Popen[bytes] | None = None

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def _spawn(self, *words: str, fds: Sequence[int] = ()) -> subprocess.Popen[bytes]:
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [self._python, str(SUPPORT / "vllm_child.py"), *words],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=dict(self._environ),
                cwd=self._folder,
                pass_fds=fds,
                start_new_session=True,
            )
        return self._process

    def _fail(self, what: str) -> VllmError:
        tail = "\n".join(self.log().splitlines()[-60:])
        return VllmError(f"{what}; the end of its log:\n{tail}")

    def _end(self) -> None:
        """Wait for the child, then end whatever is left of its group: processes that this one started."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LINGER)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        if process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.close()


class _Child(_Process):
    """The `llm` way of `vllm_child`."""

    def start(self, keywords: dict[str, Any], timeout: float) -> None:
        read, write = os.pipe()
        self._answers = read
        self._received = b""
        begun = time.monotonic()
        try:
            self._spawn("llm", str(write), fds=(write,))
        finally:
            os.close(write)
        self._ask("start", timeout, engine=keywords)
        self.start_seconds = time.monotonic() - begun

    def generate(self, requests: Sequence[Request], *, timeout: float = PATIENCE) -> list[Generation]:
        asked = [
            {
                "prompt": one.prompt if isinstance(one.prompt, str) else list(one.prompt),
                "params": dict(one.params),
                "abort_after": one.abort_after,
            }
            for one in requests
        ]
        answer = self._ask("generate", timeout, requests=asked)
        self.generate_seconds = answer["seconds"]
        return [Generation(**one) for one in answer["generations"]]

    def metrics(self) -> dict[str, Any]:
        found: dict[str, Any] = self._ask("metrics", PATIENCE)
        return found

    def call(self, function: str, /, **arguments: Any) -> Any:
        return self._ask("call", PATIENCE, function=function, arguments=arguments)

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(VllmError):
                self._ask("stop", LINGER)
        self._end()
        os.close(self._answers)

    def _ask(self, command: str, timeout: float, **arguments: Any) -> Any:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"command": command, **arguments}).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._fail(f"vLLM had ended before {command}") from None
        answer = json.loads(self._line(command, time.monotonic() + timeout))
        if isinstance(answer, dict) and "error" in answer:
            raise self._fail(f"{command}: {answer['error']}")
        return answer

    def _line(self, command: str, until: float) -> bytes:
        while b"\n" not in self._received:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                os.killpg(self._process.pid, signal.SIGKILL)  # type: ignore[union-attr]
                raise self._fail(f"{command} took too long")
            part = os.read(self._answers, 1 << 16)
            if not part:
                raise self._fail(f"vLLM ended in {command}")
            self._received += part
        line, _, self._received = self._received.partition(b"\n")
        return line


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


class _Server(_Process):
    """The `serve` way, over a socket file."""

    def start(self, keywords: dict[str, Any], timeout: float) -> None:
        self._socket = self._folder / "http"
        self._model = keywords["model"]
        begun = time.monotonic()
        process = self._spawn("serve", *_flags(keywords), "--uds", str(self._socket))
        while not self._healthy():
            if process.poll() is not None:
                raise self._fail("vllm serve ended while starting")
            if time.monotonic() > begun + timeout:
                raise self._fail("vllm serve took too long to start")
            time.sleep(0.25)
        self.start_seconds = time.monotonic() - begun

    def generate(self, requests: Sequence[Request], *, timeout: float = PATIENCE) -> list[Generation]:
        results: list[Generation | Exception | None] = [None] * len(requests)

        def run(index: int, request: Request) -> None:
            try:
                results[index] = self._complete(request, timeout)
            except Exception as error:
                results[index] = error

        begun = time.monotonic()
        threads = [threading.Thread(target=run, args=pair, daemon=True) for pair in enumerate(requests)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, begun + timeout - time.monotonic()))
        self.generate_seconds = time.monotonic() - begun
        for result in results:
            if not isinstance(result, Generation):
                raise self._fail(f"completion: {result or 'took too long'}")
        return [result for result in results if isinstance(result, Generation)]

    def metrics(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for line in self._get("/metrics").splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                name, _, labels = name.partition("{")
                name = name.removesuffix("_total")
                if 'position="' in labels:
                    found.setdefault(name, []).append(float(value))
                elif name not in found or not isinstance(found[name], list):
                    found[name] = found.get(name, 0.0) + float(value)
        return found

    def call(self, function: str, /, **arguments: Any) -> Any:
        raise NotImplementedError("a server is spoken to by HTTP only")

    def close(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        self._end()

    def _healthy(self) -> bool:
        try:
            self._get("/health")
        except (OSError, http.client.HTTPException):
            return False
        return True

    def _get(self, path: str) -> str:
        connection = _UnixConnection(self._socket, 10.0)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if response.status != 200:
            raise http.client.HTTPException(f"{path}: {response.status} {text[:200]}")
        return text

    def _complete(self, request: Request, timeout: float) -> Generation:
        prompt = request.prompt if isinstance(request.prompt, str) else list(request.prompt)
        body = {"model": self._model, "prompt": prompt, "stream": True, "return_token_ids": True}
        connection = _UnixConnection(self._socket, timeout)
        tokens: list[int] = []
        steps: list[int] = []
        text, reason = "", "abort"
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", "/v1/completions", json.dumps(body | dict(request.params)), headers)
            response = connection.getresponse()
            if response.status != 200:
                raise VllmError(f"completion: {response.status} {response.read(500)!r}")
            for event in _events(response):
                choice = event["choices"][0]
                new = choice.get("token_ids") or []
                tokens += new
                steps += [len(new)] if new else []
                text += choice["text"]
                reason = choice["finish_reason"] or reason
                if request.abort_after is not None and len(tokens) >= request.abort_after:
                    break
        finally:
            connection.close()
        return Generation(tokens, reason, text, steps)


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in response:
        data = line.strip().removeprefix(b"data: ")
        if data == b"[DONE]":
            return
        if line.startswith(b"data: "):
            event = json.loads(data)
            if "error" in event:
                raise VllmError(f"completion: {event['error']}")
            if event.get("choices"):
                yield event


def _flags(keywords: Mapping[str, Any]) -> list[str]:
    """`LLM` keywords as flags of `vllm serve`."""
    words = [str(keywords["model"])]
    for name, value in keywords.items():
        flag = "--" + name.replace("_", "-")
        if name == "model" or value is None:
            continue
        if value is True:
            words.append(flag)
        elif value is False:
            # Switches that are off by default and have no `--no-` form are left out.
            words += [] if name in ("disable_log_stats", "skip_tokenizer_init") else ["--no-" + flag[2:]]
        else:
            words += [flag, value if isinstance(value, str) else json.dumps(value)]
    return words
