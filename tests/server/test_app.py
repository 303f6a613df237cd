"""The whole server in this process: every way it ends, and that nothing is left of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidedraft.engine import Engine
from sidedraft.server.app import listen
from sidedraft.server.ending import Ending
from sidedraft.server.phases import Phase
from sidedraft.settings import ServerSettings
from sidedraft.transport.base import Event, Listener, TransportError
from sidedraft.transport.zmq import ZmqChannel
from sidedraft.wire.errors import Code
from support.checkpoints import tiny_draft, tiny_target
from support.engine_client import text
from support.serve_process import sockets, wait_for
from support.server_run import ServerRun
from support.wire_peer import WirePeer, hello, make_advance

TAPS, HIDDEN, VOCAB, DEPTH = (1, 3), 32, 97, 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("s")
    target = tiny_target(folder / "target", hidden=HIDDEN, vocab=VOCAB)
    tiny_draft(folder / "draft", "dflash", target=target, taps=TAPS, max_depth=DEPTH)
    return folder


@pytest.fixture(autouse=True)
def _nothing_is_left(folder: Path) -> Iterator[None]:
    before = threading.active_count()
    yield
    assert sockets(folder) == []
    wait_for(lambda: threading.active_count() <= before)


def test_a_stop_ends_it(folder: Path) -> None:
    run = ServerRun(folder)
    run.wait_ready()
    run.server.stop("enough")
    assert run.end() == Ending(0, "enough")
    assert run.server.parts.board.ready() == (False, "enough")


def test_a_stop_before_it_is_ready_never_makes_it_ready(folder: Path) -> None:
    run = ServerRun(folder)
    run.server.stop("never mind")
    assert run.end().status == 0
    assert run.server.parts.lifecycle.phase is Phase.DRAINING


class DyingListener:
    """A listener that can be told to die."""

    def __init__(self, inner: Listener) -> None:
        self._inner = inner
        self.address = inner.address
        self.dying = False

    def poll(self, timeout: float) -> list[Event]:
        if self.dying:
            raise TransportError("no more descriptors")
        return self._inner.poll(timeout)

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)


def test_a_dead_transport_is_a_failure(folder: Path) -> None:
    listeners: list[DyingListener] = []

    def make(settings: ServerSettings) -> DyingListener:
        listeners.append(DyingListener(listen(settings)))
        return listeners[0]

    run = ServerRun(folder, make)
    run.wait_ready()
    listeners[0].dying = True
    ending = run.end()
    assert ending.status == 1
    assert "no more descriptors" in ending.reason
    assert run.server.parts.lifecycle.phase is Phase.FAILED
    assert not run.ready


def test_a_dead_engine_is_a_failure(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("device lost")

    run = ServerRun(folder)
    run.wait_ready()
    channel = ZmqChannel(f"ipc://{folder}/a.sock")
    try:
        peer = WirePeer(channel)
        peer.greet(hello(TAPS, HIDDEN, VOCAB, family="dflash", layout="bonus", max_depth=DEPTH))
        monkeypatch.setattr(Engine, "finish", broken)
        for generation in range(2):
            peer.advance(make_advance(1, 0, 0, text(3), width=64, depth=1, generation=generation))
            assert peer.answers(1)[0].error == Code.INTERNAL
        peer.advance(make_advance(1, 0, 0, text(3), width=64, depth=1, generation=2))
        ending = run.end()
    finally:
        channel.close()
    assert (ending.status, ending.reason) == (1, "the engine thread died: RuntimeError: device lost")


def test_two_servers_at_one_address(folder: Path) -> None:
    first = ServerRun(folder)
    first.wait_ready()
    second = ServerRun(folder)
    ending = second.end()
    assert ending.status == 2
    assert "in use" in ending.reason
    first.server.stop("done")
    assert first.end().status == 0


def test_a_setting_that_the_draft_does_not_allow_is_told_in_one_line(folder: Path) -> None:
    run = ServerRun(folder, max_depth=DEPTH + 1)
    ending = run.end()
    assert ending.status == 2
    assert ending.reason.startswith("max_depth: 4 is not allowed")
