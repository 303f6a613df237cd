"""What libzmq does not offer: looking at one of its connections, and ending it, by file descriptor.

A descriptor's number may be used again the moment it is closed, in another thread and without our knowledge.
So every use pins the open file with `dup` first, and compares what it is with what was noted when the
connection was accepted.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator

_TCP_INFO_SIZE = 136
_BYTES_RECEIVED = struct.Struct("=Q")
_BYTES_RECEIVED_AT = 128
"""Of `tcpi_bytes_received` in Linux's `struct tcp_info` (8 bytes, 24 u32, then u64: pacing, max pacing,
acked, received); the layout only grows at its end."""


_CREDENTIALS = struct.Struct("=iII")
"""Linux's `struct ucred`: process, user, group."""

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: on, for no time."""

Identity = tuple[int, int]
"""Device and inode of an open file: no other file has them as long as it is open."""


def identity_of(descriptor: int) -> Identity | None:
    """What a descriptor means now, None when it is closed."""
    try:
        about = os.fstat(descriptor)
    except OSError:
        return None
    return about.st_dev, about.st_ino


def bytes_received(descriptor: int, identity: Identity | None) -> int | None:
    """Bytes the peer has sent on this tcp connection; None when it is gone or not tcp."""
    with _pinned(descriptor, identity) as connection:
        if connection is None or connection.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        try:
            info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_SIZE)
        except OSError:
            return None
    if len(info) < _TCP_INFO_SIZE:
        return None
    received: int = _BYTES_RECEIVED.unpack_from(info, _BYTES_RECEIVED_AT)[0]
    return received


def peer_user(descriptor: int, identity: Identity | None) -> int | None:
    """The user id at the other end of a Unix connection; None when it is gone or not one.

    At a client's end that is who listens there, whoever made the file.
    """
    with _pinned(descriptor, identity) as connection:
        if connection is None or connection.family != socket.AF_UNIX:
            return None
        try:
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return None
    user: int = _CREDENTIALS.unpack(credentials)[1]
    return user


def shut_down(descriptor: int, identity: Identity | None) -> bool:
    """End the connection under libzmq, which sees it closed by its peer. False: it was gone already."""
    with _pinned(descriptor, identity) as connection:
        if connection is None:
            return False
        try:
            # libzmq's close becomes a reset: what the kernel holds is freed, and a peer in the middle of a
            # flood is told at once instead of probing a full window for a minute.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            return False
    return True


@contextlib.contextmanager
def _pinned(descriptor: int, identity: Identity | None) -> Iterator[socket.socket | None]:
    """The connection itself for a moment, or None when the descriptor means something else by now."""
    try:
        pinned = os.dup(descriptor)
    except OSError:
        yield None
        return
    try:
        if identity is None or identity_of(pinned) != identity:
            raise OSError("another file by now")
        connection = socket.socket(fileno=pinned)
    except OSError:  # of `socket` too: not a socket at all
        os.close(pinned)
        yield None
        return
    with connection:
        yield connection
