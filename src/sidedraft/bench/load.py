"""A verifier's prompts going in while something else is measured."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sidedraft.bench.errors import BenchError
from sidedraft.bench.session import PATIENCE, Session

REQUEST = "load"


class Load:
    """One prompt after the other, on a thread of its own, each a new request. `bytes` of rows went in within
    `seconds`, over all times that it ran."""

    def __init__(self, session: Session, rows: int) -> None:
        """`rows`: of a prompt."""
        self.bytes = 0
        self.seconds = 0.0
        self._session = session
        self._rows = rows
        self._error: Exception | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """From the first row on its way until the last prompt is in. Raises what went wrong meanwhile."""
        begun, enough = threading.Event(), threading.Event()
        thread = threading.Thread(target=self._run, args=(begun, enough), name="bench-load", daemon=True)
        sent, started = self._session.bytes_of_rows(), time.perf_counter()
        thread.start()
        try:
            begun.wait(PATIENCE)
            yield
        finally:
            enough.set()
            thread.join(PATIENCE)
        self.bytes += self._session.bytes_of_rows() - sent
        self.seconds += time.perf_counter() - started
        if self._error is not None:
            raise self._error

    def _run(self, begun: threading.Event, enough: threading.Event) -> None:
        session = self._session
        try:
            while not enough.is_set():
                prompt = session.state(REQUEST, 0, self._rows, 1)
                begun.set()
                session.step([prompt])
                session.release([REQUEST])
        except BenchError as error:
            self._error = error
        finally:
            begun.set()
