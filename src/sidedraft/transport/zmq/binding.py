"""Binds a listener's two lanes, or neither."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import zmq

from sidedraft.transport.address import MAX_PORT, Address, IpcAddress, TcpAddress
from sidedraft.transport.base import Lane, TransportError
from sidedraft.transport.zmq.unix_socket import UnixSocketFile

_PORT_TRIES = 32
"""Attempts to find two neighbouring free ports when any port will do."""

Sockets = Mapping[Lane, zmq.Socket[Any]]


@dataclass(slots=True)
class Bound:
    """Where the lanes are bound, and the files to remove at the end."""

    address: Address
    files: list[UnixSocketFile] = field(default_factory=list)

    def close(self) -> None:
        for file in self.files:
            file.close()


def bind(sockets: Sockets, address: Address) -> Bound:
    """Bind both lanes; raises TransportError with the sockets unusable and no file left behind."""
    if isinstance(address, IpcAddress):
        return _bind_ipc(sockets, address)
    if address.port == 0:
        return _bind_any_port(sockets, address)
    for lane, socket in sockets.items():
        _bind(socket, address.endpoint(lane))
    return Bound(address)


def _bind_ipc(sockets: Sockets, address: IpcAddress) -> Bound:
    bound = Bound(address)
    try:
        for lane, socket in sockets.items():
            file = UnixSocketFile(address.lane_path(lane))
            bound.files.append(file)
            descriptor = file.hand_over()
            socket.setsockopt(zmq.SocketOption.USE_FD, descriptor)
            _bind(socket, address.endpoint(lane))
    except BaseException:
        bound.close()
        raise
    return bound


def _bind_any_port(sockets: Sockets, address: TcpAddress) -> Bound:
    """The kernel chooses the control port; the next one must be free too, else it is asked again."""
    control, bulk = sockets[Lane.CONTROL], sockets[Lane.BULK]
    for _ in range(_PORT_TRIES):
        _bind(control, address.endpoint(Lane.CONTROL))
        endpoint = control.getsockopt_string(zmq.SocketOption.LAST_ENDPOINT)
        chosen = TcpAddress(address.host, int(endpoint.rpartition(":")[2]))
        try:
            if chosen.port <= MAX_PORT:
                _bind(bulk, chosen.endpoint(Lane.BULK))
                return Bound(chosen)
        except TransportError:
            pass
        control.unbind(endpoint)
    raise TransportError(f"address {address}: found no two neighbouring free ports in {_PORT_TRIES} tries")


def _bind(socket: zmq.Socket[Any], endpoint: str) -> None:
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        if error.errno == zmq.EADDRINUSE:
            raise TransportError(f"address {endpoint}: already in use") from None
        raise TransportError(f"address {endpoint}: cannot be bound: {error}") from None
