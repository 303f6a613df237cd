"""`sidedraft serve` as a process of its own, in a folder of its own."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import sidedraft

PATIENCE = 90.0
"""Seconds until a test gives up; the machine may be busy."""


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "sidedraft.cli.main", *words]


def environment(folder: Path) -> dict[str, str]:
    """This package, one thread, and a runtime directory that belongs to the test."""
    source = str(Path(sidedraft.__file__).resolve().parents[1])
    return os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1", "XDG_RUNTIME_DIR": str(folder)}


def sockets(folder: Path) -> list[Path]:
    """Socket files anywhere below a folder."""
    return [path for path in folder.rglob("*") if stat.S_ISSOCK(path.lstat().st_mode)]


def wait_for(what: Callable[[], bool], timeout: float = PATIENCE) -> None:
    until = time.monotonic() + timeout
    while not what():
        if time.monotonic() > until:
            raise TimeoutError
        time.sleep(0.01)


@dataclass
class Outcome:
    """How a process that was waited for ended."""

    status: int
    out: str
    err: str


class ServeProcess:
    """Started at once; a context manager that leaves no process behind."""

    def __init__(self, folder: Path, arguments: Sequence[str], program: str | None = None) -> None:
        """`program`: Python text that runs the command line in another way than the user does."""
        words = command("serve", *arguments)
        if program is not None:
            words = [sys.executable, "-c", program, "serve", *arguments]
        self._out, self._err = folder / "out.txt", folder / "err.txt"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                words,
                stdout=out,
                stderr=err,
                stdin=subprocess.DEVNULL,
                env=environment(folder),
                start_new_session=True,
            )

    def __enter__(self) -> ServeProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    @property
    def out(self) -> str:
        return self._out.read_text()

    @property
    def err(self) -> str:
        return self._err.read_text()

    def wait_for(self, what: Callable[[], bool]) -> None:
        """Until something holds; the process must not end before."""

        def holds() -> bool:
            assert self.process.poll() is None, f"ended early:\n{self.out}\n{self.err}"
            return what()

        wait_for(holds)

    def http_address(self) -> str:
        """HOST:PORT, known as soon as the process is alive."""
        self.wait_for(lambda: "/healthz" in self.out)
        found = re.search(r"http://([^/\s]+)/healthz", self.out)
        assert found is not None, self.out
        return found[1]

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection(self.http_address(), timeout=PATIENCE)
        try:
            connection.request("GET", path)
            reply = connection.getresponse()
            return reply.status, json.loads(reply.read())
        finally:
            connection.close()

    def wait_ready(self) -> None:
        self.wait_for(lambda: self.get("/readyz")[0] == 200)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> Outcome:
        self.process.send_signal(number)
        return self.end()

    def end(self) -> Outcome:
        status = self.process.wait(timeout=PATIENCE)
        return Outcome(status, self.out, self.err)
