"""The HTTP end: what each path says, and that a bad client costs nothing."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from sidedraft.server.http import HttpError, HttpServer


class Board:
    answer: tuple[bool, str] = (False, "loading")

    def ready(self) -> tuple[bool, str]:
        return self.answer

    def status(self) -> dict[str, Any]:
        return {"phase": "loading", "family": None}


class Figures:
    def render(self, accept: str) -> tuple[bytes, str]:
        return f"asked for {accept}".encode(), "text/plain; version=0.0.4"


@pytest.fixture
def server() -> Iterator[HttpServer]:
    server = HttpServer("127.0.0.1:0", Board(), Figures())
    yield server
    server.close()


def request(server: HttpServer, path: str, method: str = "GET") -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection(server.address, timeout=10)
    connection.request(method, path)
    reply = connection.getresponse()
    body = reply.read()
    connection.close()
    return reply.status, json.loads(body) if body.startswith(b"{") else {}


def test_alive_while_not_ready(server: HttpServer) -> None:
    assert request(server, "/healthz") == (200, {"alive": True})
    assert request(server, "/readyz") == (503, {"ready": False, "reason": "loading"})


def test_readiness_follows_the_board(server: HttpServer) -> None:
    server.board.answer = (True, "ready")  # type: ignore[attr-defined]
    assert request(server, "/readyz?x=1")[0] == 200


def test_status_is_the_boards(server: HttpServer) -> None:
    assert request(server, "/v1/status") == (200, {"phase": "loading", "family": None})


def test_metrics_are_sent_as_they_are_in_the_format_that_was_asked_for(server: HttpServer) -> None:
    connection = http.client.HTTPConnection(server.address, timeout=10)
    connection.request("GET", "/metrics", headers={"Accept": "text/plain"})
    reply = connection.getresponse()
    assert (reply.status, reply.read()) == (200, b"asked for text/plain")
    assert reply.headers["Content-Type"] == "text/plain; version=0.0.4"
    connection.close()


def test_head_has_no_body_and_other_methods_are_refused(server: HttpServer) -> None:
    assert request(server, "/healthz", "HEAD") == (200, {})
    assert request(server, "/healthz", "POST")[0] == 501


def test_an_unknown_path_lists_the_known_ones(server: HttpServer) -> None:
    status, body = request(server, "/metric")
    assert status == 404
    assert "/v1/status" in body["paths"]


def test_an_address_in_use_is_one_line(server: HttpServer) -> None:
    with pytest.raises(HttpError, match=r"http: cannot listen on .*in use"):
        HttpServer(server.address, Board(), Figures())


def test_connections_that_keep_all_places_give_way_the_oldest_first(server: HttpServer) -> None:
    host, _, port = server.address.rpartition(":")
    slow = []
    try:
        for _ in range(32):
            slow.append(socket.create_connection((host, int(port)), timeout=10))
            slow[-1].sendall(b"GET /healthz HTTP/1.1\r\nX: ")
        for _ in range(3):
            assert request(server, "/healthz")[0] == 200
        assert slow[0].recv(1) == b""
        slow[-1].sendall(b"y\r\n\r\n")
        assert slow[-1].recv(12) == b"HTTP/1.1 200"
    finally:
        for one in slow:
            one.close()


def test_a_silent_connection_is_closed(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert server.RequestHandlerClass.timeout is not None
    monkeypatch.setattr(server.RequestHandlerClass, "timeout", 0.01)
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as silent:
        assert silent.recv(1) == b""


@pytest.mark.parametrize("host", ["a" * 70, "a..b", "no-such-host.invalid"])
def test_a_host_that_cannot_be_is_one_line(host: str) -> None:
    with pytest.raises(HttpError, match="http: cannot listen on"):
        HttpServer(f"{host}:0", Board(), Figures())


def test_garbage_does_not_hurt(server: HttpServer) -> None:
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as peer:
        peer.sendall(b"\x00\xff" * 50 + b"\r\n\r\n")
        assert peer.recv(100) != b""
    assert request(server, "/healthz")[0] == 200
