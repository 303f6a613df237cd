"""`sidedraft status`: the picture, the JSON, and what is said when there is nothing to show."""

from __future__ import annotations

import io
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from rich.console import Console

from sidedraft.cli.main import main
from sidedraft.cli.status import watch
from sidedraft.server.http import HttpServer
from sidedraft.settings import SettingsError, StatusSettings
from support.engine_client import text
from support.metrics_scene import Scene, stage
from support.wire_peer import make_advance

WIDTH = 4


class Server:
    """A scene and its HTTP end."""

    def __init__(self, *, loaded: bool = True) -> None:
        self.scene = Scene(loaded=loaded)
        self.http = HttpServer("127.0.0.1:0", self.scene.board, self.scene.metrics)

    def work(self) -> None:
        """A request with a prompt and a draft, and a verifier that reports."""
        peer = self.scene.bench.peer(greet=False)
        peer.greet(self.scene.bench.hello(verifier="[red]engine"))
        peer.advance(make_advance(1, 0, 0, text(20), width=WIDTH, depth=2))
        peer.answers(1)
        self.scene.report(
            peer,
            counts={"drafted": 1234, "late": 5, "fillers": 6, "rows_sent": 789},
            stages={"client_total": stage(10, 900)},
            drafted=(100, 100, 50),
            accepted=(80, 40, 10),
        )


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.http.close()


def status(server: Server, *words: str) -> int:
    return main(["status", "--http", server.http.address, *words])


def test_a_server_at_work(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.work()
    assert status(server) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "ready" in lines[0]
    shown = "\n".join(" ".join(line.split()) for line in lines)
    for words in (
        "1 requests, 0 queued, 1 steps, 1 drafts, 20 rows, 0 rows from the index",
        "2 held",
        "[red]engine",
        "closed",
        "breaker closed",
        "drafts 1,234",
        "late 5",
        "fillers 6",
        "tokens a step with a draft 2.30",  # (80 + 40 + 10) / 100, and one
        "% accepted at 1, 2, ... 80 40 20",
        "client_total 0.75 (0.99)",
    ):
        assert words in shown, words


def test_many_verifiers_are_shown_below_each_other(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(6):
        peer = server.scene.bench.peer(greet=False)
        peer.greet(server.scene.bench.hello(verifier=f"v{number}"))
        server.scene.report(peer)
    assert status(server) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    heads = [words[1:] for words in lines if words[:1] == ["verifier"]]
    assert heads == [["v0", "v1", "v2", "v3"], ["v4", "v5"]]


def test_a_verifier_that_does_not_report_is_shown_without_figures(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    server.scene.bench.peer()
    assert status(server) == 0
    assert "no report" in capsys.readouterr().out


def test_a_server_that_loads_is_shown_and_counts_as_not_ready(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server(loaded=False)
    try:
        assert status(server) == 1
        assert "loading" in capsys.readouterr().out
    finally:
        server.http.close()


def test_the_json_is_the_servers(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    server.work()
    assert status(server, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sessions"][0]["report"]["acceptance"]["length"] == 2.3
    shown = server.scene.board.status()
    del found["phase_seconds"], shown["phase_seconds"]  # in real time
    assert found == shown


def test_nobody_there_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        assert main(["status", "--http", f"127.0.0.1:{port}"]) == 1
    error = capsys.readouterr().err
    assert (
        error == f"sidedraft: error: no draft server answers at http://127.0.0.1:{port}: Connection refused\n"
    )


@pytest.mark.parametrize("answer", [{"hello": "world"}, {"software": 3}])
def test_something_else_there_is_one_line(answer: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    class Board:
        def ready(self) -> tuple[bool, str]:
            return True, ""

        def status(self) -> dict[str, Any]:
            return answer

    http = HttpServer("127.0.0.1:0", Board(), Scene(loaded=False).metrics)
    try:
        assert main(["status", "--http", http.address]) == 1
    finally:
        http.close()
    error = capsys.readouterr().err
    assert error.startswith(f"sidedraft: error: http://{http.address} is no draft server of this version: ")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    "words", [["--http", "off"], ["--http", "x"], ["--http", "h:0"], ["--http", "h:70000"], ["--watch", "0"]]
)
def test_a_wrong_flag_is_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", *words]) == 2
    error = capsys.readouterr().err
    assert error.startswith("sidedraft: error: ")
    assert error.count("\n") == 1


def test_settings_name_what_is_wrong() -> None:
    with pytest.raises(SettingsError, match=r"watch: -1.0 is not allowed; expected seconds, above 0"):
        StatusSettings(watch=-1.0)


class Looks:
    """Stands for the time between looks; interrupts after the last of `steps`."""

    def __init__(self, *steps: Any) -> None:
        self._steps = list(steps)

    def __call__(self) -> None:
        if not self._steps:
            raise KeyboardInterrupt
        self._steps.pop(0)()


def test_watching_shows_rates_and_outlives_the_server(server: Server) -> None:
    bench = server.scene.bench
    peer = bench.peer()

    def two_seconds() -> None:
        bench.clock.advance_to(bench.clock() + 2.0)
        for request in range(3):
            peer.advance(make_advance(request, 0, 0, text(4), width=WIDTH, depth=1))
            peer.answers(1)

    out = io.StringIO()
    console = Console(file=out, width=200, markup=False, highlight=False)
    settings = StatusSettings(http=server.http.address, watch=1.0)
    assert watch(settings, console, Looks(two_seconds, server.http.close)) == 0
    first, _, second = out.getvalue().partition("3 drafts (1.5/s)")
    assert "0 drafts," in first  # no rate at the first look
    assert "no draft server answers" in second


def test_watching_in_a_terminal_leaves_it_as_it_was(server: Server) -> None:
    out = io.StringIO()
    console = Console(file=out, width=200, force_terminal=True, markup=False, highlight=False)
    assert watch(StatusSettings(http=server.http.address, watch=1.0), console, Looks(lambda: None)) == 0
    entered, left = out.getvalue().count("\x1b[?1049h"), out.getvalue().count("\x1b[?1049l")
    assert entered == left == 1


def test_watching_json_is_a_line_each(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    settings = StatusSettings(http=server.http.address, watch=1.0, json=True)
    assert watch(settings, Console(), Looks(server.http.close)) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["phase"], second["ready"]) == ("ready", False)
