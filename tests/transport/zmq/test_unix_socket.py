"""Socket files: private, never stolen, never left behind."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from sidedraft.transport.base import TransportError
from sidedraft.transport.zmq import ZmqListener
from sidedraft.transport.zmq.unix_socket import UnixSocketFile, prepare_folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def leave_stale(path: Path) -> None:
    """What a killed process leaves: a bound file and no listener."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


def test_folder_and_sockets_are_for_this_user_only(tmp_path: Path) -> None:
    previous = os.umask(0)
    try:
        listener = ZmqListener(f"ipc://{tmp_path}/new/draft.sock")
    finally:
        os.umask(previous)
    folder = tmp_path / "new"
    assert mode(folder) == 0o700
    assert {path.name: mode(path) for path in folder.iterdir()} == {
        "draft.sock": 0o600,
        "draft.sock.bulk": 0o600,
    }
    listener.close()
    assert list(folder.iterdir()) == []


def test_a_stale_file_is_replaced(tmp_path: Path) -> None:
    for name in ("draft.sock", "draft.sock.bulk"):
        leave_stale(tmp_path / "s" / name)
    listener = ZmqListener(f"ipc://{tmp_path}/s/draft.sock")
    listener.close()
    assert list((tmp_path / "s").iterdir()) == []


def test_a_living_server_keeps_its_address(tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/draft.sock"
    listener = ZmqListener(address)
    with pytest.raises(TransportError, match=r"draft\.sock: already in use"):
        ZmqListener(address)
    listener.close()
    ZmqListener(address).close()


def test_a_server_with_a_full_backlog_is_living(tmp_path: Path) -> None:
    path = tmp_path / "draft.sock"
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(str(path))
        busy.listen(0)
        waiting.connect(str(path))
        with pytest.raises(TransportError, match="already in use"):
            UnixSocketFile(path)


def test_a_taken_bulk_path_leaves_nothing_bound(tmp_path: Path) -> None:
    taken = UnixSocketFile(tmp_path / "draft.sock.bulk")
    with pytest.raises(TransportError, match=r"draft\.sock\.bulk: already in use"):
        ZmqListener(f"ipc://{tmp_path}/draft.sock")
    assert [path.name for path in tmp_path.iterdir()] == ["draft.sock.bulk"]
    taken.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    precious = tmp_path / "draft.sock"
    precious.write_text("precious")
    with pytest.raises(TransportError, match="something else than a socket"):
        ZmqListener(f"ipc://{tmp_path}/draft.sock")
    assert precious.read_text() == "precious"


def test_a_successors_file_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "draft.sock"
    first = UnixSocketFile(path)
    path.unlink()
    second = UnixSocketFile(path)
    first.close()
    assert path.exists()
    second.close()
    assert not path.exists()


@pytest.mark.parametrize("bits", [0o770, 0o707])
def test_a_folder_others_may_write_to_is_refused(tmp_path: Path, bits: int) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(bits)
    with pytest.raises(TransportError, match=r"lets others write; expected 0700"):
        prepare_folder(folder)
    folder.chmod(bits | stat.S_ISVTX)  # as /tmp: others cannot replace what is ours
    prepare_folder(folder)


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    other = 54321
    if os.geteuid() == 0:
        os.chown(folder, other, other)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: other)
    with pytest.raises(TransportError, match="belongs to user"):
        prepare_folder(folder)


def test_a_folder_that_is_none_or_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path)
    for name in ("file", "link"):
        with pytest.raises(TransportError, match=f"{name}: not a folder"):
            prepare_folder(tmp_path / name)
    with pytest.raises(TransportError, match="cannot be made: No such file or directory"):
        prepare_folder(tmp_path / "missing" / "folder")
