"""The list of clients that may come in: a line a client, with its public key and its rights.

# name     public key                                namespaces (its own name when left out)
engine-a   rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7  default,team-a
engine-b   Yne@$w-vo<fVvi]a<NY6T1ed:M$fCG*[IaLV{hID
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sidedraft.transport.keys import NAME, NAME_EXPECTED, KeyFileError, check_key, read_lines

_log = logging.getLogger(__name__)

MAX_CLIENTS = 4096
MAX_NAMESPACES = 64

_SHOWN = 60
"""Characters of a wrong word that an error repeats."""


@dataclass(frozen=True, slots=True)
class Client:
    """Who holds a key, and what that is good for."""

    name: str
    key: str
    """Public, in Z85."""
    namespaces: tuple[str, ...]
    """Those it may use; the first one is meant when it asks for `default` and has no right to that."""


def read_clients(path: Path) -> dict[str, Client]:
    """The clients by key. None at all is a list, too: nobody may come in. Raises KeyFileError."""
    lines, about = read_lines(path)
    if about.st_uid not in (os.geteuid(), 0):
        raise KeyFileError(path, f"a file of user {about.st_uid}", "a list of this user or root")
    mode = stat.S_IMODE(about.st_mode)
    if mode & 0o022:
        raise KeyFileError(path, f"mode {mode:04o}, which lets others add keys", "mode 0644 or less")
    clients: dict[str, Client] = {}
    names: set[str] = set()
    for number, line in lines:
        client = _read(path, number, line)
        if client.name in names or client.key in clients:
            twice = f"the name {client.name}" if client.name in names else "a key"
            raise KeyFileError(path, f"{twice} for the second time", "each name and key once", number)
        names.add(client.name)
        clients[client.key] = client
    if len(clients) > MAX_CLIENTS:
        raise KeyFileError(path, f"{len(clients)} clients", f"at most {MAX_CLIENTS}")
    return clients


class ClientList:
    """A file of clients that is read again when it changes. A new list that is wrong changes nothing."""

    def __init__(self, path: Path) -> None:
        """Raises KeyFileError."""
        self.path = path
        self._stamp = self._look()
        self._clients: Mapping[str, Client] = read_clients(path)
        self._former: set[str] = set()

    def __len__(self) -> int:
        return len(self._clients)

    def get(self, key: str) -> Client | None:
        """Who holds this key, if it is somebody who may come in."""
        return self._clients.get(key)

    def was_revoked(self, key: str) -> bool:
        """Whether the key was in the list in this process' life, and is no more."""
        return key in self._former

    def refresh(self) -> bool:
        """Read the file if it changed; true when the list did. Says in one line what became of it."""
        stamp = self._look()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            clients = read_clients(self.path)
        except KeyFileError as error:
            _log.warning("the list of clients stays as it was: %s", error)
            return False
        if clients == self._clients:
            return False
        came, went = clients.keys() - self._clients.keys(), self._clients.keys() - clients.keys()
        self._former = (self._former | went) - clients.keys()
        self._clients = clients
        _log.warning("%s: %d clients now, %d new, %d revoked", self.path, len(clients), len(came), len(went))
        return True

    def _look(self) -> tuple[int, ...]:
        """What tells one version of the file from another."""
        try:
            about = self.path.stat()
        except OSError:
            return ()
        return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def client_line(name: str, key: str, namespaces: tuple[str, ...]) -> str:
    """A client as the list has it. Raises KeyFileError: a name that the list cannot hold."""
    for word in (name, *namespaces):
        if NAME.fullmatch(word) is None:
            raise KeyFileError(Path(name), f"the name {word[:_SHOWN]!r}", NAME_EXPECTED)
    return " ".join([name, key, *([",".join(namespaces)] if namespaces else [])])


def _read(path: Path, number: int, line: str) -> Client:
    words = line.split()
    if len(words) not in (2, 3):
        raise KeyFileError(path, f"{len(words)} words", "NAME KEY [NAMESPACE,NAMESPACE...]", number)
    name, key = words[:2]
    if NAME.fullmatch(name) is None:
        raise KeyFileError(path, f"the name {name[:_SHOWN]!r}", NAME_EXPECTED, number)
    wrong = check_key(key)
    if wrong is not None:
        raise KeyFileError(path, wrong, "a public key, 40 characters of Z85", number)
    namespaces = tuple(words[2].split(",")) if len(words) == 3 else (name,)
    for namespace in namespaces:
        if NAME.fullmatch(namespace) is None:
            raise KeyFileError(path, f"the namespace {namespace[:_SHOWN]!r}", NAME_EXPECTED, number)
    if len(namespaces) > MAX_NAMESPACES or len(set(namespaces)) < len(namespaces):
        raise KeyFileError(
            path, f"{len(namespaces)} namespaces", f"at most {MAX_NAMESPACES}, each once", number
        )
    return Client(name, key, namespaces)
