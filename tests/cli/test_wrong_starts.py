"""Wrong inputs of `sidedraft serve`: all of them in this process, a few as a user meets them.

`checks/serve_errors.py` runs all of them as processes.
"""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sidedraft.cli.main import main
from support.serve_process import sockets
from support.wrong_starts import WRONG_STARTS, Workshop, WrongStart, arguments, faults

AS_PROCESSES = {"unknown config key", "http address in use", "ipc address in use", "truncated safetensors"}


@pytest.fixture
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose path is short enough for a Unix socket."""
    return tmp_path_factory.mktemp("s")


@pytest.mark.parametrize("start", WRONG_STARTS, ids=lambda start: start.name)
def test_one_line_and_nothing_left(
    start: WrongStart, short: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    shop = Workshop(short)
    with shop.open:
        words = arguments(start, shop)
        if "--http" not in words:
            words += ["--http", "127.0.0.1:0"]
        words.append("--exit-after-load")  # a start that is not wrong after all must not serve for ever
        before, threads = sockets(short), set(threading.enumerate())
        status = main(["serve", *words])
        assert sockets(short) == before
    assert status == 2
    error = capsys.readouterr().err
    lines = [line for line in error.splitlines() if not line.endswith(" %")]
    assert len(lines) == 1
    assert lines[0].startswith("sidedraft: error: ")
    for part in start.says:
        assert part in error
    assert {t for t in threading.enumerate() if t.name.startswith("sidedraft")} <= threads


@pytest.mark.slow
@pytest.mark.parametrize(
    "start", [s for s in WRONG_STARTS if s.name in AS_PROCESSES], ids=lambda start: start.name
)
def test_the_same_as_a_process(start: WrongStart, short: Path) -> None:
    assert list(faults(start, short)) == []
