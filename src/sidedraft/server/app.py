"""A draft server from start to end: threads, signals, and one way out.

Light on purpose: importing this and starting the HTTP end takes a fraction of a second; torch is imported
by the engine thread while the server already answers that it is alive.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from sidedraft.server.dispatch import Dispatcher
from sidedraft.server.ending import STOPPED, WRONG_INPUT, Ending, StartError
from sidedraft.server.folders import check_folders
from sidedraft.server.http import HttpError, HttpServer
from sidedraft.server.io_loop import IoLoop
from sidedraft.server.parts import Parts
from sidedraft.server.phases import Phase
from sidedraft.server.prometheus import ServerMetrics
from sidedraft.server.report import Report
from sidedraft.settings import HTTP_OFF, ServerSettings
from sidedraft.transport.address import default_address
from sidedraft.transport.base import Listener, TransportError
from sidedraft.transport.clients import ClientList
from sidedraft.transport.keys import KeyFileError, read_secret

ENGINE_GRACE = 7.0
"""Seconds the engine thread has to come to its end: more than its drain."""
LOADING_GRACE = 2.0
"""The same while it loads; an import of torch cannot be broken off and is not waited for."""
IO_GRACE = 2.0

MakeListener = Callable[[ServerSettings], Listener]


def listen(settings: ServerSettings) -> Listener:
    """The listener over ZeroMQ that the settings ask for."""
    from sidedraft.transport.zmq import ZmqListener

    keys = None
    if settings.secret_key is not None and settings.clients is not None:
        keys = (read_secret(Path(settings.secret_key)), ClientList(Path(settings.clients)))
    return ZmqListener(
        settings.bind or default_address(),
        settings.wire(),
        insecure_plain_text=settings.insecure_plain_text,
        keys=keys,
    )


class DraftServer:
    """One server; `run` may be called once."""

    def __init__(
        self, settings: ServerSettings, report: Report, make_listener: MakeListener = listen
    ) -> None:
        self.parts = Parts(settings, report)
        self._make_listener = make_listener

    def stop(self, reason: str) -> None:
        """Ask the server to end in good order; from any thread or signal handler."""
        self.parts.endings.put(Ending(STOPPED, reason))

    def run(self) -> Ending:
        """Serve until stopped or failed. Leaves no thread (but see `Ending.threads_ended`), no socket."""
        with self._signals():
            try:
                http = self._start_http()
            except (HttpError, StartError) as error:
                return Ending(WRONG_INPUT, str(error))
            try:
                return self._run(http)
            finally:
                if http is not None:
                    http.close()

    def _start_http(self) -> HttpServer | None:
        settings = self.parts.settings
        check_folders(settings)
        board = self.parts.board
        return None if settings.http == HTTP_OFF else HttpServer(settings.http, board, ServerMetrics(board))

    def _run(self, http: HttpServer | None) -> Ending:
        parts = self.parts
        try:
            listener = self._make_listener(parts.settings)
        except KeyFileError as error:
            return Ending(WRONG_INPUT, f"keys: {error}")
        except TransportError as error:
            return Ending(WRONG_INPUT, f"bind: {error}")
        address, status = listener.address, "" if http is None else http.address
        dispatcher = Dispatcher(listener, parts.lifecycle, parts.epoch, parts.io_counters)
        io = IoLoop(listener, dispatcher, parts.inbox)
        parts.board.facts |= {"address": address, "http": status}
        parts.board.sessions, parts.board.io = dispatcher.sessions, io
        parts.report.note(
            f"loading; verifiers {address}" + (f", health http://{status}/healthz" if status else "")
        )

        def engine() -> None:
            from sidedraft.server.serving import run_engine

            run_engine(parts, io, address, status)

        def transport() -> None:
            io.run(parts.stop_io, lambda: parts.lifecycle.reason)

        threads = {
            name: parts.endings.guard(name, run)
            for name, run in (("transport", transport), ("engine", engine))
        }
        parts.board.threads.update(threads)
        ending = parts.endings.wait()
        return self._shut_down(ending, threads, listener)

    def _shut_down(self, ending: Ending, threads: dict[str, threading.Thread], listener: Listener) -> Ending:
        parts = self.parts
        serving = parts.lifecycle.phase is Phase.READY
        parts.lifecycle.enter(Phase.FAILED if ending.status else Phase.DRAINING, ending.reason)
        parts.stop_engine.set()
        threads["engine"].join(ENGINE_GRACE if serving else LOADING_GRACE)
        parts.stop_io.set()
        if threads["transport"].is_alive():
            listener.wake()
        threads["transport"].join(IO_GRACE)
        alive = any(thread.is_alive() for thread in threads.values())
        return Ending(ending.status, ending.reason, threads_ended=not alive)

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM stop the server while it runs. Without effect off the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def handle(number: int, _: FrameType | None) -> None:
            self.stop(signal.Signals(number).name)

        before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
