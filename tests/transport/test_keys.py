"""Key files: made with safe modes, read with suspicion, and errors that name file, line and expectation."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st
from zmq.utils import z85

from sidedraft.transport.keys import (
    KeyFileError,
    check_key,
    read_public,
    read_secret,
    read_verifier_keys,
    write_pair,
)
from support.fixed_keys import fixed_pair


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def private(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_a_pair_is_written_for_its_owner_only_and_reads_back(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        pair, secret, public = write_pair(tmp_path / "keys", "engine-a")
    finally:
        os.umask(before)
    assert (mode(secret.parent), mode(secret), mode(public)) == (0o700, 0o600, 0o644)
    assert read_secret(secret) == pair
    assert read_public(public) == read_public(secret) == pair.public
    assert pair.secret not in public.read_text()
    assert pair.secret not in repr(pair)


@pytest.mark.parametrize("there", ["engine-a.secret", "engine-a.public"])
def test_nothing_is_overwritten(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine")
    with pytest.raises(KeyFileError, match=f"{there}: a file that is there already"):
        write_pair(tmp_path, "engine-a")
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "engine-a.secret").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(KeyFileError, match="there already"):
        write_pair(tmp_path, "engine-a")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("name", ["", "a/b", "../up", ".hidden", "a" * 65, "ä"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(KeyFileError, match="expected a name of 1 to 64"):
        write_pair(tmp_path, name)


@pytest.mark.parametrize("others", [0o640, 0o604, 0o620, 0o602, 0o644])
def test_a_secret_that_others_reach_is_not_read(tmp_path: Path, others: int) -> None:
    _, secret, _ = write_pair(tmp_path, "a")
    secret.chmod(others)
    for read in (read_secret, read_public):
        with pytest.raises(KeyFileError, match=rf"a\.secret: mode {others:04o}.*expected mode 0600"):
            read(secret)


def test_a_secret_of_another_user_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, secret, _ = write_pair(tmp_path, "a")
    os.chown(secret, 54321, -1) if os.geteuid() == 0 else monkeypatch.setattr(os, "geteuid", lambda: 54321)
    with pytest.raises(KeyFileError, match=r"a file of user \d+; expected a secret key of this user"):
        read_secret(secret)


GOOD = fixed_pair(3)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ": 0 lines with keys; expected one line"),
        ("# only words\n", ": 0 lines with keys"),
        (f"secret {GOOD.secret}\nsecret {GOOD.secret}\n", ", line 2: 2 lines with keys"),
        (f"# head\n\n{GOOD.secret}\n", ", line 3: no key; expected one line 'secret KEY'"),
        (f"password {GOOD.secret}\n", ", line 1: no key"),
        (f"public {GOOD.public}\n", ", line 1: a public key; expected a line 'secret KEY'"),
        (f"# head\nsecret {GOOD.secret[:-1]}\n", ", line 2: a key of 39 characters; expected 40"),
        (f"secret {GOOD.secret}x\n", ", line 1: a key of 41 characters"),
        (f"secret {GOOD.secret[:-1]}~\n", ", line 1: a key with characters that Z85 does not have"),
        (f"secret {'#' * 40}\n", ", line 1: a key "),
        ("secret ä\n", ", line 1: characters outside ASCII; expected plain ASCII"),
    ],
)
def test_a_wrong_secret_file_is_told_by_line_without_its_secret(tmp_path: Path, text: str, says: str) -> None:
    path = private(tmp_path / "a.secret", text)
    with pytest.raises(KeyFileError) as caught:
        read_secret(path)
    assert str(caught.value).startswith(f"{path}{says}")
    assert GOOD.secret[:10] not in str(caught.value)


def test_what_is_no_small_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo", 0o600)
    great = tmp_path / "great"
    great.touch(0o600)
    os.truncate(great, 1 << 30)
    for path, says in (
        (tmp_path / "none", "No such file"),
        (tmp_path, "directory|regular"),
        (tmp_path / "fifo", "no regular file"),
        (great, "more than"),
    ):
        with pytest.raises(KeyFileError, match=says):
            read_secret(path)


Z85 = st.text(z85.Z85CHARS.decode(), min_size=40, max_size=40)


@given(
    st.one_of(
        st.text(max_size=50),
        Z85,
        st.binary(min_size=32, max_size=32).map(lambda raw: z85.encode(raw).decode()),
    )
)
def test_any_text_is_a_key_or_told_what_is_wrong(text: str) -> None:
    wrong = check_key(text)
    if wrong is None:
        zmq.curve_public(text.encode())
    else:
        assert "key" in wrong
        assert len(text) < 10 or text not in wrong


def test_a_verifiers_two_files_give_its_keys(tmp_path: Path) -> None:
    server, _, server_public = write_pair(tmp_path, "server")
    own, own_secret, own_public = write_pair(tmp_path, "engine-a")
    assert read_verifier_keys(None, None) is None
    keys = read_verifier_keys(str(server_public), str(own_secret))
    assert keys is not None
    assert (keys.server, keys.own) == (server.public, own)
    with pytest.raises(KeyFileError, match="a public key; expected a line 'secret KEY'"):
        read_verifier_keys(str(server_public), str(own_public))
