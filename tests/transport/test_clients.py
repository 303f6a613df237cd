"""The list of clients: read by line, read again when it changes, kept when the new one is wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sidedraft.transport.clients import Client, ClientList, read_clients
from sidedraft.transport.keys import KeyFileError
from support.fixed_keys import fixed_pair

A, B = fixed_pair(1).public, fixed_pair(2).public


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o644)
    return path


def test_a_line_a_client(tmp_path: Path) -> None:
    text = f"# who may come in\n\nengine-a  {A}  default,team-a\n  engine-b\t{B}\n"
    assert read_clients(written(tmp_path / "clients", text)) == {
        A: Client("engine-a", A, ("default", "team-a")),
        B: Client("engine-b", B, ("engine-b",)),
    }


def test_an_empty_list_lets_nobody_in(tmp_path: Path) -> None:
    assert read_clients(written(tmp_path / "clients", "# nobody\n")) == {}


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("engine-a", "1 words; expected NAME KEY"),
        (f"engine-a {A} default team", "4 words"),
        (f"engine/a {A}", "the name 'engine/a'; expected a name of 1 to 64"),
        (f"{'a' * 65} {A}", "the name"),
        ("engine-a short", "a key of 5 characters; expected a public key"),
        (f"engine-a {A[:-1]}~", "a key with characters that Z85 does not have"),
        (f"engine-a {A} default,,x", "the namespace ''"),
        (f"engine-a {A} default,x y", "4 words"),
        (f"engine-a {A} default,default", "2 namespaces; expected at most 64, each once"),
        (f"engine-a {A} {','.join(map(str, range(65)))}", "65 namespaces"),
        (f"first {B}", "the name first for the second time"),
        (f"second {A}", "a key for the second time"),
        ("ä", "characters outside ASCII"),
    ],
)
def test_a_wrong_line_is_told_with_its_number(tmp_path: Path, line: str, says: str) -> None:
    path = written(tmp_path / "clients", f"# head\nfirst {A}\n{line}\n")
    with pytest.raises(KeyFileError) as caught:
        read_clients(path)
    assert str(caught.value).startswith(f"{path}, line 3: {says}")


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_list_that_others_can_extend_is_refused(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path / "clients", f"a {A}\n")
    path.chmod(mode)
    with pytest.raises(KeyFileError, match=f"mode {mode:04o}, which lets others add keys"):
        read_clients(path)


def test_a_list_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "clients", f"a {A}\n")
    os.chown(path, 54321, -1) if os.geteuid() == 0 else monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(KeyFileError, match=r"a file of user \d+"):
        read_clients(path)


def test_changes_are_read_and_told_in_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = written(tmp_path / "clients", f"a {A}\n")
    clients = ClientList(path)
    assert not clients.refresh()
    written(path, f"a {A} default\nb {B}\n")
    assert clients.refresh()
    assert (clients.get(A), clients.get(B)) == (Client("a", A, ("default",)), Client("b", B, ("b",)))
    written(path, f"b {B}\n")
    assert clients.refresh()
    assert clients.get(A) is None
    assert clients.was_revoked(A)
    assert not clients.was_revoked(B)
    written(path, f"b {B}\na {A}\n# back again\n")
    assert clients.refresh()
    assert not clients.was_revoked(A)
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}: 2 clients now, 1 new, 0 revoked",
        f"{path}: 1 clients now, 0 new, 1 revoked",
        f"{path}: 2 clients now, 1 new, 0 revoked",
    ]


@pytest.mark.parametrize("spoiled", ["b short\n", None])
def test_a_wrong_new_list_changes_nothing_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoiled: str | None
) -> None:
    path = written(tmp_path / "clients", f"a {A}\n")
    clients = ClientList(path)
    path.unlink()
    if spoiled is not None:
        written(path, spoiled)
    for _ in range(3):
        assert not clients.refresh()
    assert clients.get(A) is not None
    (told,) = caplog.records
    says = "No such file" if spoiled is None else "line 1: a key of 5 characters"
    assert told.getMessage().startswith(f"the list of clients stays as it was: {path}")
    assert says in told.getMessage()
    written(path, f"b {B}\n")
    assert clients.refresh()
    assert clients.get(A) is None


def test_a_list_that_is_wrong_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match="No such file"):
        ClientList(tmp_path / "clients")
