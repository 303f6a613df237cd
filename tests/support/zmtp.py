"""A peer that speaks just enough ZMTP 3.0 by hand to misbehave."""

from __future__ import annotations

import socket
import struct

from sidedraft.transport.address import IpcAddress, parse_address
from sidedraft.transport.base import Lane

GREETING = b"\xff" + bytes(8) + b"\x7f" + b"\x03\x00" + b"NULL".ljust(20, b"\0") + b"\0" + bytes(31)
MORE = 1
LONG = 2
COMMAND = 4


def plug(address: str, lane: Lane = Lane.CONTROL) -> socket.socket:
    """A bare connection to a listener's lane."""
    where = parse_address(address)
    if isinstance(where, IpcAddress):
        bare = socket.socket(socket.AF_UNIX)
        bare.settimeout(10)
        bare.connect(str(where.lane_path(lane)))
        return bare
    return socket.create_connection((where.host, where.lane_port(lane)), timeout=10)


def frame(payload: bytes, *, more: bool = False) -> bytes:
    """One message frame on the wire."""
    return frame_header(len(payload), more=more) + payload


def frame_header(size: int, *, more: bool = False) -> bytes:
    """The head of a long frame, which may promise what never comes."""
    return bytes([LONG | (MORE if more else 0)]) + struct.pack(">Q", size)


def shake_hands(bare: socket.socket, identity: bytes = b"", kind: bytes = b"DEALER") -> None:
    """Greeting and READY, as a client or a server."""
    bare.sendall(GREETING)
    body = b"\x05READY" + _property(b"Socket-Type", kind) + _property(b"Identity", identity)
    bare.sendall(bytes([COMMAND, len(body)]) + body)
    read_exactly(bare, len(GREETING))
    flags, size = read_exactly(bare, 2)
    assert flags == COMMAND
    read_exactly(bare, size)


def read_exactly(bare: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = bare.recv(count - len(data))
        if not part:
            raise ConnectionResetError("closed by the other end")
        data += part
    return data


def is_closed(bare: socket.socket) -> bool:
    """Wait until the other end closes; what it sends before is thrown away. False: it did not."""
    try:
        while bare.recv(65536):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


def _property(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + struct.pack(">I", len(value)) + value
