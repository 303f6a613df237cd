"""The HTTP end: liveness, readiness, status and metrics, read-only, on threads of its own.

It is up before anything heavy is imported and needs nothing but a `Board` and `Metrics` to read from.
"""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import socketserver
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

log = logging.getLogger(__name__)

PATHS = ("/healthz", "/readyz", "/v1/status", "/metrics")

_CONNECTIONS = 32
"""Connections served at once; for one more the oldest has to go, so that neither a flood nor slow peers keep
a probe from its answer."""
_PATIENCE = 5.0
"""Seconds a connection may be silent."""


class Board(Protocol):
    """What the HTTP end shows."""

    def ready(self) -> tuple[bool, str]:
        """Whether proposals can be served right now, and the reason in words."""

    def status(self) -> dict[str, Any]:
        """Everything, as JSON values; no prompt, token or row."""


class Metrics(Protocol):
    """What the HTTP end has scraped from it."""

    def render(self, accept: str) -> tuple[bytes, str]:
        """Text and content type for an Accept header."""


class HttpError(Exception):
    """The HTTP end cannot be bound."""


class _Handler(BaseHTTPRequestHandler):
    server: HttpServer
    timeout = _PATIENCE
    server_version = "sidedraft"
    sys_version = ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        board = self.server.board
        if path == "/healthz":
            self._reply(200, {"alive": True})
        elif path == "/readyz":
            ready, reason = board.ready()
            self._reply(200 if ready else 503, {"ready": ready, "reason": reason})
        elif path == "/v1/status":
            self._reply(200, board.status())
        elif path == "/metrics":
            self._send(200, *self.server.metrics.render(self.headers.get("Accept", "")))
        else:
            self._reply(404, {"error": "not found", "paths": list(PATHS)})

    def do_HEAD(self) -> None:
        self.do_GET()

    def _reply(self, status: int, body: dict[str, Any]) -> None:
        self._send(status, json.dumps(body, indent=2).encode() + b"\n", "application/json")

    def _send(self, status: int, data: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *args: Any, **_: Any) -> None:
        log.debug(*args)


class HttpServer(ThreadingHTTPServer):
    """Serves from construction until `close`."""

    daemon_threads = True
    request_queue_size = 2 * _CONNECTIONS

    def __init__(self, address: str, board: Board, metrics: Metrics) -> None:
        """`address` is HOST:PORT, validated by `ServerSettings`; port 0 lets the system choose."""
        host, _, port = address.rpartition(":")
        if host.startswith("["):
            self.address_family = socket.AF_INET6
        self.board = board
        self.metrics = metrics
        self._places = threading.BoundedSemaphore(_CONNECTIONS)
        self._open: dict[socket.socket, None] = {}
        """In the order of their coming."""
        try:
            super().__init__((host.strip("[]"), int(port)), _Handler)
        except (OSError, ValueError) as error:  # ValueError: a name that no resolver would take
            reason = getattr(error, "strerror", None) or error
            raise HttpError(f"http: cannot listen on {address}: {reason}") from None
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.1}, name="sidedraft-http", daemon=True
        )
        self._thread.start()

    @property
    def address(self) -> str:
        """HOST:PORT as bound."""
        host, port = self.server_address[:2]
        shown = f"[{host!s}]" if self.address_family is socket.AF_INET6 else str(host)
        return f"{shown}:{port}"

    def server_bind(self) -> None:
        # HTTPServer looks up the host's name here, which can wait for a name server for seconds.
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._places.acquire(blocking=False):
            self._hang_up_oldest()
            if not self._places.acquire(timeout=_PATIENCE):
                self.shutdown_request(request)
                return
        self._open[request] = None
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.pop(request, None)
            self._places.release()

    def _hang_up_oldest(self) -> None:
        for oldest in list(self._open)[:1]:
            with contextlib.suppress(OSError):  # it has just ended by itself
                oldest.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("a request of %s failed", client_address, exc_info=True)

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self._thread.join()
