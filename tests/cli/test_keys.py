"""`sidedraft keys`, and a server and a verifier that use what it makes, as processes of their own."""

from __future__ import annotations

import stat
import subprocess
import time
from pathlib import Path

import pytest

from sidedraft.cli.main import main
from sidedraft.settings import VerifierSettings
from sidedraft.transport.clients import read_clients
from sidedraft.transport.keys import read_secret
from sidedraft.verifier.drafter import Drafter
from sidedraft.verifier.facts import VerifierFacts
from sidedraft.wire.messages import DraftFacts, TargetFacts
from support.checkpoints import tiny_draft, tiny_target
from support.serve_process import PATIENCE, ServeProcess, command, wait_for

TAPS, HIDDEN, VOCAB, DEPTH = (1, 3), 32, 97, 3


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = main(["keys", *words])
    out, err = capsys.readouterr()
    return status, out, err


def test_a_servers_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "keys"
    status, out, err = said(capsys, "server", "--out", str(folder))
    assert status == 0
    secret = folder / "server.secret"
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert out == read_secret(secret).public + "\n"
    assert f"--secret-key {secret}" in err
    assert read_secret(secret).secret not in out + err
    for kind in ("secret", "public"):
        assert said(capsys, "show", str(folder / f"server.{kind}")) == (0, out, "")


def test_a_clients_keys_and_its_line_for_the_list(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ""
    for words in (("engine-a",), ("engine-b", "--namespace", "team", "--namespace", "default")):
        status, out, _ = said(capsys, "client", *words, "--out", str(tmp_path))
        assert status == 0
        lines += out
    clients = tmp_path / "clients"
    clients.write_text(lines)
    assert {c.name: c.namespaces for c in read_clients(clients).values()} == {
        "engine-a": ("engine-a",),
        "engine-b": ("team", "default"),
    }
    assert set(read_clients(clients)) == {
        read_secret(tmp_path / f"{name}.secret").public for name in ("engine-a", "engine-b")
    }


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("show", "/nowhere/a.secret"), "/nowhere/a.secret: No such file"),
        (("client", "a/b"), "the name 'a/b'; expected a name of 1 to 64"),
        (("client", "a", "--namespace", "x,y"), "the name 'x,y'"),
        (("server", "--out", "/proc/none"), "/proc/none"),
        (("client",), "NAME"),
        ((), "ACTION"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str
) -> None:
    status, out, err = said(capsys, *words)
    assert (status, out) == (2, "")
    assert says in err
    assert len(err.splitlines()) == 1


def test_nothing_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "server", "--out", str(tmp_path))[0] == 0
    before = (tmp_path / "server.secret").read_text()
    status, _, err = said(capsys, "server", "--out", str(tmp_path))
    assert status == 2
    assert "none is replaced" in err
    assert (tmp_path / "server.secret").read_text() == before


def facts(label: str) -> VerifierFacts:
    return VerifierFacts(
        target=TargetFacts(taps=TAPS, hidden_size=HIDDEN, vocab_size=VOCAB),
        draft=DraftFacts(family="dspark", layout="anchor", max_depth=DEPTH),
        max_position=4096,
        label=label,
    )


@pytest.mark.slow
def test_a_server_with_keys_from_its_command_line_to_a_revoked_verifier(tmp_path: Path) -> None:
    target = tiny_target(tmp_path / "target", hidden=HIDDEN, vocab=VOCAB)
    tiny_draft(tmp_path / "draft", "dspark", target=target, taps=TAPS, max_depth=DEPTH)
    keys = tmp_path / "keys"

    def make(*words: str) -> str:
        done = subprocess.run(
            command("keys", *words, "--out", str(keys)), capture_output=True, text=True, check=True
        )
        return done.stdout

    make("server")
    lines = {name: make("client", name) for name in ("engine-a", "engine-b")}
    clients = keys / "clients"
    clients.write_text("".join(lines.values()))
    arguments = ["--draft", str(tmp_path / "draft"), "--target", str(tmp_path / "target")]
    arguments += ["--bind", "tcp://0.0.0.0:0", "--http", "127.0.0.1:0", "--skip-smoke-test"]
    arguments += ["--secret-key", str(keys / "server.secret"), "--clients", str(clients)]
    with ServeProcess(tmp_path, arguments) as server:
        server.wait_ready()
        assert "--server-key SERVER.public --client-key CLIENT.secret" in server.out
        port = str(server.get("/v1/status")[1]["address"]).rpartition(":")[2]
        drafters = {
            name: Drafter(
                f"tcp://127.0.0.1:{port}",
                facts(name),
                VerifierSettings(
                    server_key=str(keys / "server.public"), client_key=str(keys / f"{name}.secret")
                ),
            )
            for name in lines
        }
        try:
            for drafter in drafters.values():
                assert drafter.wait_connected(PATIENCE)
            sessions = server.get("/v1/status")[1]["sessions"]
            assert {s["client"]: s["namespace"] for s in sessions} == {name: name for name in lines}
            clients.write_text(lines["engine-b"])
            wait_for(lambda: not drafters["engine-a"].connected)
            wait_for(lambda: "refused a connection" in server.err)
            time.sleep(0.5)
            assert not drafters["engine-a"].connected
            assert drafters["engine-b"].connected
            clients.write_text("".join(lines.values()))
            assert drafters["engine-a"].wait_connected(PATIENCE)
        finally:
            for drafter in drafters.values():
                drafter.close()
        secret = read_secret(keys / "server.secret").secret
        assert secret not in server.out + server.err
        assert server.stop().status == 0
