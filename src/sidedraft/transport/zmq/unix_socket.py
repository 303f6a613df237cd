"""Listening Unix sockets as files: private, never stolen from a living process, removed at the end.

libzmq would unlink whatever stands at the path before it binds, a living server's socket included. So the
socket is made here and handed to libzmq as a descriptor.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from sidedraft.transport.base import TransportError
from sidedraft.transport.zmq.options import CONNECTIONS_WAITING

_LOCK_PATIENCE = 2.0
"""Seconds to wait for another process that is binding in the same folder; binding takes microseconds."""


def prepare_folder(folder: Path) -> None:
    """Make the folder of a socket, for this user only (mode 0700), or check the one that is there.

    Raises TransportError when it cannot be made, or when users other than this one and root could replace
    what is in it.
    """
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise TransportError(f"folder {folder}: cannot be made: {error.strerror}") from None
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode):
        raise TransportError(f"folder {folder}: not a folder; expected one for the socket")
    if about.st_uid not in (os.geteuid(), 0):
        raise TransportError(f"folder {folder}: belongs to user {about.st_uid}; expected this user or root")
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not about.st_mode & stat.S_ISVTX:
        mode = stat.S_IMODE(about.st_mode)
        raise TransportError(f"folder {folder}: mode {mode:04o} lets others write; expected 0700")


class UnixSocketFile:
    """A Unix socket that listens at `path`, readable and writable by this user only.

    A file left behind by a dead process is replaced. Raises TransportError when a living one has it, when
    something else stands there, or when the folder cannot be used.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        prepare_folder(path.parent)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            with _binding(path.parent):
                _remove_stale(path)
                # Nobody can connect before `listen`, so there is no moment with a wider mode.
                self._socket.bind(str(path))
                path.chmod(0o600)
                self._socket.listen(CONNECTIONS_WAITING)
                self._identity = _identity(path)
        except OSError as error:
            self._socket.close()
            raise TransportError(f"socket {path}: cannot be bound: {error.strerror}") from None
        except TransportError:
            self._socket.close()
            raise

    def hand_over(self) -> int:
        """The descriptor, for libzmq to own and close."""
        return self._socket.detach()

    def close(self) -> None:
        """Remove the file, unless another one stands there by now; close what was not handed over."""
        self._socket.close()
        with contextlib.suppress(OSError):
            if _identity(self.path) == self._identity:
                self.path.unlink()


def _identity(path: Path) -> tuple[int, int]:
    about = path.lstat()
    return about.st_dev, about.st_ino


@contextlib.contextmanager
def _binding(folder: Path) -> Iterator[None]:
    """One process at a time looks for a stale file and replaces it; the lock is on the folder itself."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        give_up = time.monotonic() + _LOCK_PATIENCE
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > give_up:
                    raise TransportError(f"folder {folder}: another process keeps it locked") from None
                time.sleep(0.005)
        yield
    finally:
        os.close(descriptor)


def _remove_stale(path: Path) -> None:
    """Unlink a socket that nobody listens to."""
    try:
        about = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(about.st_mode):
        raise TransportError(f"socket {path}: something else than a socket stands there; it is left alone")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        except BlockingIOError:  # its backlog is full: alive, and busy
            raise TransportError(f"address ipc://{path}: already in use") from None
        else:
            raise TransportError(f"address ipc://{path}: already in use")
