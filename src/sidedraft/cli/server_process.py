"""A draft server as a process of its own that ends with this one."""

from __future__ import annotations

import ctypes
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sidedraft.cli.errors import CommandError

STOP_SECONDS = 10.0
"""What a clean stop may take before the process is killed."""
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Server:
    """A running `sidedraft serve`."""

    bound: str
    """As it was told; port 0 stands for one of its choice."""
    log: Path
    process: subprocess.Popen[bytes]

    @property
    def address(self) -> str:
        """Where verifiers connect; with port 0 known as soon as it loads."""
        found = re.search(r"loading; verifiers ([^,\s]+)", self.log.read_text(errors="replace"))
        return found[1] if found is not None else self.bound

    def wait_ready(self, timeout: float) -> None:
        """Until it serves proposals. Raises CommandError when it ends, or is not ready in time (seconds)."""
        until = time.monotonic() + timeout
        while not self._ready():
            self.check()
            if time.monotonic() > until:
                raise CommandError(f"the draft server was not ready within {timeout:.0f} s")
            time.sleep(0.1)

    @property
    def http(self) -> str | None:
        """HOST:PORT where health and status are told; its banner says so, the port is its own choice."""
        found = re.search(r"http://([^/\s]+)/healthz", self.log.read_text(errors="replace"))
        return None if found is None else found[1]

    def _ready(self) -> bool:
        if self.http is None:
            return False
        try:
            with urllib.request.urlopen(f"http://{self.http}/readyz", timeout=5) as reply:
                return bool(reply.status == 200)
        except OSError:  # not ready is an HTTP error, which is one too
            return False

    def check(self) -> None:
        """Raises CommandError with the log's last line when the process has ended."""
        status = self.process.poll()
        if status is not None:
            lines = self.log.read_text(errors="replace").strip().splitlines() or ["it said nothing"]
            raise CommandError(f"the draft server ended with status {status}: {lines[-1]}")


@contextmanager
def serving(
    draft: Path, target: Path | None, arguments: Sequence[str] = (), bind: str | None = None
) -> Iterator[Server]:
    """Start a server; stop it at the end.

    target: None when `draft` is a bundle. arguments: more flags of `sidedraft serve`. bind: another address
    than a socket in a private folder, which is removed at the end.
    """
    with tempfile.TemporaryDirectory(prefix="sidedraft-") as home:
        address, log = bind or f"ipc://{home}/draft.sock", Path(home) / "serve.log"
        weights = (
            ["--bundle", str(draft)] if target is None else ["--draft", str(draft), "--target", str(target)]
        )
        command = [sys.executable, "-m", "sidedraft.cli.main", "serve", "--bind", address]
        command += ["--http", "127.0.0.1:0", *weights, *arguments]
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, preexec_fn=_end_with_parent
            )
        try:
            yield Server(address, log, process)
        finally:
            _stop(process)


def _end_with_parent() -> None:
    """In the child: be terminated when the parent dies, even by a signal that it cannot handle."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
