"""vLLM as a child process, spoken to over pipes or by HTTP; `support.vllm_harness` starts it."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from support.vllm_requests import Generation, Request, VllmError

CHILD = Path(__file__).resolve().parent / "vllm_child.py"

PATIENCE = 180.0
"""Seconds until a command that is not a start counts as failed."""
LINGER = 20.0
"""Seconds that an engine gets to stop by itself."""


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
                [self._python, str(CHILD), *words],
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


class Child(_Process):
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


class Server(_Process):
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
            if line and not line.startswith("#") and "_created{" not in line:
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
