"""`sidedraft serve` as its users run it: a process on real sockets."""

from __future__ import annotations

import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from sidedraft.cli.main import main
from sidedraft.transport.base import Lane
from sidedraft.transport.zmq import ZmqChannel
from sidedraft.wire import messages as m
from sidedraft.wire.advance import Outcome
from sidedraft.wire.batch import AnswerBatch
from support.checkpoints import tiny_draft, tiny_target
from support.serve_process import ServeProcess, sockets
from support.wire_peer import WirePeer, hello, make_advance

pytestmark = pytest.mark.slow

TAPS, HIDDEN, VOCAB, DEPTH = (1, 3, 5), 32, 97, 4
WIDTH = len(TAPS) * HIDDEN


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Short, for the paths of sockets; with a target and a draft in it."""
    folder = tmp_path_factory.mktemp("s")
    target = tiny_target(folder / "target", hidden=HIDDEN, vocab=VOCAB)
    tiny_draft(folder / "draft", "dspark", target=target, taps=TAPS, max_depth=DEPTH)
    return folder


def serve(folder: Path, *more: str, program: str | None = None) -> ServeProcess:
    words = ["--draft", str(folder / "draft"), "--target", str(folder / "target"), "--kv-memory", "8MiB"]
    return ServeProcess(folder, [*words, "--http", "127.0.0.1:0", *more], program)


def greeting() -> m.Hello:
    return hello(TAPS, HIDDEN, VOCAB, family="dspark", layout="anchor", max_depth=DEPTH)


@pytest.fixture
def channels() -> Iterator[list[ZmqChannel]]:
    open_channels: list[ZmqChannel] = []
    yield open_channels
    for channel in open_channels:
        channel.close()


def connect(address: str, channels: list[ZmqChannel]) -> WirePeer:
    channels.append(ZmqChannel(address))
    peer = WirePeer(channels[-1])
    peer.greet(greeting())
    return peer


def prompt(length: int) -> np.ndarray:
    return np.arange(length, dtype=np.int32) % VOCAB


def test_from_the_first_second_to_a_clean_stop(folder: Path, channels: list[ZmqChannel]) -> None:
    config = folder / "server.toml"
    config.write_text("lease_ms = 60000\n")  # these peers send no heartbeats
    with serve(folder, "--max-requests", "8", "--config", str(config)) as server:
        assert server.get("/healthz") == (200, {"alive": True})
        assert server.get("/v1/status")[1]["phase"] in ("loading", "smoke", "ready")
        server.wait_ready()
        address = f"ipc://{folder}/sidedraft/draft.sock"
        status = server.get("/v1/status")[1]
        assert (status["phase"], status["family"], status["address"]) == ("ready", "dspark", address)
        assert (status["limits"]["max_depth"], status["limits"]["max_requests"]) == (DEPTH, 8)
        assert status["memory"]["allocated_bytes"] <= status["memory"]["kv_memory"] == 8 << 20
        assert status["counts"]["engine"]["proposals"] == 0  # the smoke test is not traffic
        assert (folder / "sidedraft").stat().st_mode & 0o777 == 0o700

        peer, canary = connect(address, channels), connect(address, channels)
        peer.advance(make_advance(1, 1, 100, prompt(4), width=WIDTH, depth=DEPTH))
        peer.advance(make_advance(1, 0, 0, prompt(100), width=WIDTH), lane=Lane.BULK)
        ingested, drafted = peer.answers(2)
        assert (ingested.outcome, ingested.committed) == (Outcome.INGESTED, 100)
        assert (drafted.outcome, drafted.rows_present) == (Outcome.DRAFTED, 104)
        assert len(drafted.tokens) == DEPTH
        assert peer.expect(m.Credit).bytes > 100 * WIDTH * 4

        peer.raw([b"\xc1garbage"])
        assert peer.expect(m.Failure).code == "malformed"
        with socket.socket(socket.AF_UNIX) as rude:
            rude.connect(address.removeprefix("ipc://"))
            rude.sendall(b"GET / HTTP/1.1\r\n\r\n" * 100)
        canary.advance(make_advance(5, 0, 0, prompt(9), width=WIDTH, depth=2), budget_us=60_000_000)
        batch = canary.expect(AnswerBatch)
        assert batch.answers[0].outcome is Outcome.DRAFTED
        assert batch.timings.server >= batch.timings.propose > 0
        status = server.get("/v1/status")[1]
        assert [session["requests"] for session in status["sessions"]] == [1, 1]
        assert status["counts"]["engine"]["proposals"] == 2

        server.process.send_signal(signal.SIGTERM)
        # What a channel has not read when the connection ends is gone.
        assert canary.expect(m.Goodbye).reason == "SIGTERM"
        ended = server.end()
    assert ended.status == 0
    assert "error" not in ended.err
    assert ended.out.splitlines()[-1] == (
        f"sidedraft generate --target {folder}/target --connect {address} --draft {folder}/draft"
    )
    assert sockets(folder) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_while_loading(folder: Path, number: signal.Signals) -> None:
    with serve(folder) as server:
        server.http_address()  # alive; torch is not imported yet
        ended = server.stop(number)
    assert (ended.status, ended.err) == (0, "")
    assert sockets(folder) == []


def test_a_stop_in_the_smoke_test(folder: Path) -> None:
    # So many batches take seconds, so that the phase can be met.
    with serve(folder, "--max-requests", "4096", "--kv-memory", "256MiB") as server:
        server.wait_for(lambda: server.get("/v1/status")[1]["phase"] == "smoke")
        assert server.get("/readyz")[0] == 503
        ended = server.stop()
    assert ended.status == 0
    assert "ready:" not in ended.out
    assert "error" not in ended.err
    assert sockets(folder) == []


def test_load_and_exit_from_a_bundle_with_a_config_file(folder: Path) -> None:
    bundle, config = folder / "bundle", folder / "server.toml"
    folders = ["--draft", f"{folder}/draft", "--target", f"{folder}/target"]
    assert main(["pack", *folders, "-o", str(bundle)]) == 0
    config.write_text("kv-memory = '8MiB'\nwindow = 32\nhttp = 'off'\nbind = 'tcp://127.0.0.1:0'\n")
    with ServeProcess(
        folder, ["--bundle", str(bundle), "--config", str(config), "--exit-after-load", "--window", "16"]
    ) as server:
        ended = server.end()
    assert ended.status == 0, ended.err
    assert "window 16" in ended.out
    assert "tcp://127.0.0.1:" in ended.out.splitlines()[-1]
    assert f"--draft {bundle}" in ended.out.splitlines()[-1]


TRANSPORT_DIES = """
import sys
from pathlib import Path
from sidedraft.cli.main import main
from sidedraft.transport.base import TransportError
from sidedraft.transport.zmq import ZmqListener
poll = ZmqListener.poll
def dying(self, timeout):
    if Path({trigger!r}).exists():
        raise TransportError("out of descriptors")
    return poll(self, timeout)
ZmqListener.poll = dying
sys.exit(main(sys.argv[1:]))
"""


def test_a_dead_transport_ends_the_process_with_one_line(folder: Path) -> None:
    trigger = folder / "trigger"
    with serve(folder, "--skip-smoke-test", program=TRANSPORT_DIES.format(trigger=str(trigger))) as server:
        server.wait_ready()
        trigger.touch()
        ended = server.end()
    assert ended.status == 1
    errors = [line for line in ended.err.splitlines() if not line.endswith(" %")]
    assert errors == ["sidedraft: error: the transport thread died: TransportError: out of descriptors"]
    assert sockets(folder) == []


FEW_DESCRIPTORS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
from sidedraft.cli.main import main
sys.exit(main(sys.argv[1:]))
"""

CROWD = """
import socket, sys
held = []
for i in range(900):
    held.append(socket.socket(socket.AF_UNIX))
    held[-1].connect(sys.argv[1] + (".bulk" if i % 2 else ""))
"""


def test_a_crowd_of_connections_does_not_end_the_server(folder: Path, channels: list[ZmqChannel]) -> None:
    with serve(folder, "--skip-smoke-test", program=FEW_DESCRIPTORS) as server:
        server.wait_ready()
        soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
        assert soft in (hard, 65_536)
        path = f"{folder}/sidedraft/draft.sock"
        crowds = [subprocess.Popen([sys.executable, "-c", CROWD, path]) for _ in range(2)]
        assert [crowd.wait(60) for crowd in crowds] == [0, 0]
        peer = connect(f"ipc://{path}", channels)
        peer.advance(make_advance(1, 0, 0, prompt(9), width=WIDTH, depth=2))
        assert peer.answers(1)[0].outcome is Outcome.DRAFTED
        assert server.stop().status == 0
