"""Key files: what they look like, and that nobody else can read a secret one.

A key is a Curve25519 key in Z85, 40 characters. A file holds one, after its kind:

    # Sidedraft secret key of engine-a. Whoever reads this file can pose as its owner.
    secret rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7
"""

from __future__ import annotations

import os
import re
import stat
import struct
from dataclasses import dataclass, field
from pathlib import Path

import zmq
from zmq.utils import z85

from sidedraft.transport.base import TransportError

PUBLIC, SECRET = "public", "secret"

KEY_CHARACTERS = 40
KEY_BYTES = 32

NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
NAME_EXPECTED = "a name of 1 to 64 letters, digits, '.', '_', '-'"

_GREATEST = 1 << 20
"""Bytes of a file that is read at all."""
_LINE = "one line 'secret KEY' or 'public KEY'"
_SHOWN = 60
"""Characters of a wrong line that an error repeats; a secret is never repeated."""


class KeyFileError(TransportError):
    """A file of keys cannot be used: says which, in what line, what was found and what was expected."""

    def __init__(self, path: Path, found: str, expected: str, line: int | None = None) -> None:
        where = f"{path}" if line is None else f"{path}, line {line}"
        super().__init__(f"{where}: {found}; expected {expected}")
        self.path = path
        self.found = found
        self.expected = expected


@dataclass(frozen=True, slots=True)
class KeyPair:
    """One side's own keys, in Z85."""

    public: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class VerifierKeys:
    """What a verifier connects with: the server's public key, which it must prove, and its own pair."""

    server: str
    own: KeyPair


def make_pair() -> KeyPair:
    """A new pair, from libzmq's source of randomness."""
    public, secret = zmq.curve_keypair()
    return KeyPair(public.decode(), secret.decode())


def check_key(text: str) -> str | None:
    """What is wrong with a key's text, in words that do not repeat it; None when nothing is."""
    if len(text) != KEY_CHARACTERS:
        return f"a key of {len(text)} characters"
    try:
        value = z85.decode(text)
    except struct.error:
        return "a key out of range"
    except (ValueError, KeyError):
        return "a key with characters that Z85 does not have"
    return None if len(value) == KEY_BYTES else "a key out of range"


def read_public(path: Path) -> str:
    """The public key of a file made by `write_pair`, of either kind. Raises KeyFileError."""
    text, about = read_lines(path)
    kind, line, key = _only_key(path, text)
    if kind == SECRET:
        _check_private(path, about)
        return _public_of(path, line, key)
    return key


def read_secret(path: Path) -> KeyPair:
    """The pair of a secret key's file. Raises KeyFileError, also when others may read the file."""
    text, about = read_lines(path)
    kind, line, key = _only_key(path, text)
    if kind != SECRET:
        raise KeyFileError(path, "a public key", "a line 'secret KEY'", line)
    _check_private(path, about)
    return KeyPair(_public_of(path, line, key), key)


def read_verifier_keys(server_key: str | None, client_key: str | None) -> VerifierKeys | None:
    """The keys that these two files hold; None when there are none. Raises KeyFileError."""
    if server_key is None or client_key is None:
        return None
    return VerifierKeys(read_public(Path(server_key)), read_secret(Path(client_key)))


def write_pair(folder: Path, name: str) -> tuple[KeyPair, Path, Path]:
    """Make a pair and its files `NAME.secret` (mode 0600) and `NAME.public`; returns them in this order.

    The folder is made, with mode 0700, when it is not there. Raises KeyFileError: nothing is overwritten.
    """
    if NAME.fullmatch(name) is None or name.startswith("."):
        raise KeyFileError(folder / name, f"the name {name[:_SHOWN]!r}", NAME_EXPECTED)
    secret, public = folder / f"{name}.{SECRET}", folder / f"{name}.{PUBLIC}"
    for path in (secret, public):
        if path.is_symlink() or path.exists():
            raise KeyFileError(path, "a file that is there already", "no file of this name: none is replaced")
    pair = make_pair()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        head = f"# Sidedraft secret key of {name}. Whoever reads this file can pose as its owner.\n"
        _write(secret, f"{head}{SECRET} {pair.secret}\n", 0o600)
        _write(public, f"# Sidedraft public key of {name}.\n{PUBLIC} {pair.public}\n", 0o644)
    except OSError as error:
        path = folder if error.filename is None else Path(error.filename)
        raise KeyFileError(path, error.strerror or str(error), "a folder to write keys into") from None
    return pair, secret, public


def read_lines(path: Path) -> tuple[list[tuple[int, str]], os.stat_result]:
    """The lines of a small text file that say something, with their numbers, and what file it was.

    Empty lines and those that begin with `#` say nothing. Raises KeyFileError.
    """
    try:
        # Whatever stands there must not make us wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode):
                raise KeyFileError(path, "no regular file", "a text file")
            data = file.read(_GREATEST + 1)
    except OSError as error:
        raise KeyFileError(path, error.strerror or str(error), "a readable file") from None
    if len(data) > _GREATEST:
        raise KeyFileError(path, f"more than {_GREATEST} bytes", "a small text file")
    lines = []
    for number, raw in enumerate(data.split(b"\n"), start=1):
        try:
            line = raw.decode("ascii").strip()
        except UnicodeDecodeError:
            raise KeyFileError(path, "characters outside ASCII", "plain ASCII text", number) from None
        if line and not line.startswith("#"):
            lines.append((number, line))
    return lines, about


def _only_key(path: Path, lines: list[tuple[int, str]]) -> tuple[str, int, str]:
    """Kind, line and text of the one key of a file."""
    if len(lines) != 1:
        second = lines[1][0] if lines else None
        raise KeyFileError(path, f"{len(lines)} lines with keys", _LINE, second)
    number, line = lines[0]
    kind, _, key = line.partition(" ")
    if kind not in (PUBLIC, SECRET):
        raise KeyFileError(path, "no key", _LINE, number)
    wrong = check_key(key.strip())
    if wrong is not None:
        raise KeyFileError(path, wrong, f"{KEY_CHARACTERS} characters of Z85", number)
    return kind, number, key.strip()


def _public_of(path: Path, line: int, secret: str) -> str:
    try:
        public: bytes = zmq.curve_public(secret.encode())
    except zmq.ZMQError:
        raise KeyFileError(path, "a key that is none", "a key made by `sidedraft keys`", line) from None
    return public.decode()


def _check_private(path: Path, about: os.stat_result) -> None:
    if about.st_uid not in (os.geteuid(), 0):
        raise KeyFileError(path, f"a file of user {about.st_uid}", "a secret key of this user or root")
    mode = stat.S_IMODE(about.st_mode)
    if mode & 0o077:
        raise KeyFileError(path, f"mode {mode:04o}, which lets others read it", "mode 0600 for a secret key")


def _write(path: Path, text: str, mode: int) -> None:
    # The mode holds from the first moment; O_EXCL: nothing is replaced, and no link is followed.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
