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


def test_idle_connections_beyond_the_bound_are_closed_and_the_rest_served(server: HttpServer) -> None:
    host, _, port = server.address.rpartition(":")
    idle = [socket.create_connection((host, int(port)), timeout=10) for _ in range(33)]
    try:
        # Connections are accepted in order, so that the first 32 hold all places and the 33rd is let go.
        assert idle[-1].recv(1) == b""
        idle[0].close()
        for _ in range(200):
            try:
                assert request(server, "/healthz")[0] == 200
                break
            except (http.client.HTTPException, ConnectionError):
                continue  # the place is not free yet
        else:
            pytest.fail("no place became free")
    finally:
        for one in idle:
            one.close()


def test_garbage_does_not_hurt(server: HttpServer) -> None:
    host, _, port = server.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=10) as peer:
        peer.sendall(b"\x00\xff" * 50 + b"\r\n\r\n")
        assert peer.recv(100) != b""
    assert request(server, "/healthz")[0] == 200
