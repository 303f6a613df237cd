"""Progress in a log file and in a terminal."""

from __future__ import annotations

import io
import os

import pytest
from rich.console import Console

from sidedraft.cli.console import ProgressConsole


def test_a_log_gets_a_line_every_quarter() -> None:
    log = io.StringIO()
    console = ProgressConsole(Console(file=log))
    for done in range(101):
        console.progress("loading", done, 100)
    console.progress("tiny", 1, 1)
    assert log.getvalue().splitlines() == [
        "loading: 25 %",
        "loading: 50 %",
        "loading: 75 %",
        "loading: 100 %",
        "tiny: 100 %",
    ]


def test_a_terminal_gets_a_bar_and_its_cursor_back(capsys: pytest.CaptureFixture[str]) -> None:
    screen = io.StringIO()
    console = ProgressConsole(Console(file=screen, force_terminal=True, width=80))
    console.progress("loading", 1, 2)
    console.note("a line")
    assert capsys.readouterr().out == "a line\n"
    assert "loading" in screen.getvalue()
    hidden, shown = screen.getvalue().count("\x1b[?25l"), screen.getvalue().count("\x1b[?25h")
    assert hidden == shown == 1


def test_a_reader_that_has_gone_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "w", buffering=1) as pipe:
        monkeypatch.setattr("sys.stdout", pipe)
        ProgressConsole(Console(file=io.StringIO())).note("nobody reads this")
        monkeypatch.undo()
        with pytest.raises(BrokenPipeError):
            pipe.flush()
        os.dup2(os.open(os.devnull, os.O_WRONLY), pipe.fileno())


def test_a_full_disk_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stdout", full)
        ProgressConsole(Console(file=io.StringIO())).note("no room for this")
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), full.fileno())
