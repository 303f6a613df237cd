"""The command line itself: help, version, and what a mistake looks like."""

from __future__ import annotations

import re

import pytest

import sidedraft
from sidedraft.cli import main as cli
from sidedraft.cli.errors import CommandError, one_line


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    for name in cli.COMMANDS:
        assert re.search(rf"^\s+{name}\s", text, re.MULTILINE)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--version"])
    assert capsys.readouterr().out.strip() == f"sidedraft {sidedraft.__version__}"


@pytest.mark.parametrize("words", [[], ["dance"], ["serve", "--colour"], ["serve", "--dra", "x"], ["pack"]])
def test_a_mistake_is_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("sidedraft: error: ")
    assert error.count("\n") == 1


def test_an_interrupt_is_no_traceback(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "build_parser", interrupted)
    assert cli.main([]) == 130
    assert capsys.readouterr().err == "sidedraft: error: interrupted\n"


def test_errors_of_libraries_are_put_on_one_bounded_line() -> None:
    assert one_line("a\n  b\n") == "a b"
    assert len(one_line("x" * 10_000)) < 600
    assert str(CommandError("a\nb")) == "a b"
