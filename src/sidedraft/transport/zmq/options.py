"""Every socket option, with its reason. There are no others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import zmq

from sidedraft.settings import MIB, WireLimits
from sidedraft.transport.address import Address, TcpAddress
from sidedraft.transport.base import Lane
from sidedraft.transport.keys import KeyPair, VerifierKeys
from sidedraft.transport.zmq.curve import OVERHEAD, encrypt_channel, encrypt_listener

COMMON: Mapping[zmq.SocketOption, int] = {
    # A process that closes waits for nobody. A last word must be sent, and polled for, before `close`.
    zmq.SocketOption.LINGER: 0,
    # A peer that connects and says nothing, or something else than ZMTP, holds a descriptor for so long.
    zmq.SocketOption.HANDSHAKE_IVL: 5_000,
    # A host that lost its power sends no FIN. The kernel probes a silent tcp connection each second and gives
    # it up after 5, as it does when data is not acknowledged. Not ZMTP's heartbeats: libzmq aborts the
    # process when one is due on a connection that ended while its receive queue was full.
    zmq.SocketOption.TCP_KEEPALIVE: 1,
    zmq.SocketOption.TCP_KEEPALIVE_IDLE: 1,
    zmq.SocketOption.TCP_KEEPALIVE_INTVL: 1,
    zmq.SocketOption.TCP_KEEPALIVE_CNT: 4,
    zmq.SocketOption.TCP_MAXRT: 5_000,
}

CHANNEL: Mapping[zmq.SocketOption, int] = {
    # Nothing is queued for a connection that is not there, so nothing meant for a dead server reaches its
    # successor, and `send` can say at once that nobody listens.
    zmq.SocketOption.IMMEDIATE: 1,
    # Reconnect soon after a restart, and back off (libzmq doubles the time and adds jitter) to 1 s.
    zmq.SocketOption.RECONNECT_IVL: 50,
    zmq.SocketOption.RECONNECT_IVL_MAX: 1_000,
    # A host that swallows packets must not stretch a reconnection to the kernel's two minutes.
    zmq.SocketOption.CONNECT_TIMEOUT: 2_000,
}

LISTENER: Mapping[zmq.SocketOption, int] = {
    # A message for a peer that is gone or full is an error to `send`, not silently lost.
    zmq.SocketOption.ROUTER_MANDATORY: 1,
    # A peer cannot take over another's connection by claiming its id.
    zmq.SocketOption.ROUTER_HANDOVER: 0,
}

REQUESTS_QUEUED: Mapping[Lane, int] = {Lane.CONTROL: 16, Lane.BULK: 8}
"""Messages from a verifier that each end holds: small, as a queue that is full means a server that does not
keep up, and as each may be as large as its lane's frames. The bulk lane's credit is below that."""

ANSWERS_QUEUED: Mapping[Lane, int] = {Lane.CONTROL: 64, Lane.BULK: 8}
"""Messages to a verifier that each end holds: answers are small; one that lets so many pile up is stopped."""

MESSAGES_A_POLL: Mapping[Lane, int] = {Lane.CONTROL: 64, Lane.BULK: 8}
"""Messages of one lane that one `poll` returns, of all peers together: bounds what is held at once, and lets
no flood on one lane starve the other."""

MOST_CONNECTIONS = 320
"""Connections of one lane; more are ended as soon as they are seen. Both lanes' together stay well below the
1,024 descriptors that a process commonly may have, as libzmq aborts the process at the last one."""

CONNECTIONS_WAITING = 128
"""Backlog of a listening socket."""

UNDELIVERED_LIMIT = 256 * MIB
"""Bytes a connection may receive without completing a message. Far above all that full queues of an honest
peer hold (16 messages of 2 MiB, 8 of 4 MiB), so that only endless multiparts reach it."""

WATCH_INTERVAL = 0.05
"""Seconds between two looks at the connections, even when nothing arrives: loopback moves 2-3 GB/s, so that
what a peer sends between two looks stays below the limit itself."""

RECONNECT_STALLED = 4.0
"""Seconds without any sign of libzmq's own reconnecting (at most CONNECT_TIMEOUT and RECONNECT_IVL_MAX)
until a channel starts over; libzmq gives up for good after a protocol error."""


def configure_channel(
    socket: zmq.Socket[Any], lane: Lane, address: Address, limits: WireLimits, keys: VerifierKeys | None
) -> None:
    """For a DEALER, before it connects."""
    _set(socket, {**COMMON, **CHANNEL, **_sizes(lane, limits, keys is not None), **_family(address)})
    if keys is not None:
        encrypt_channel(socket, keys)
    socket.setsockopt(zmq.SocketOption.SNDHWM, REQUESTS_QUEUED[lane])
    socket.setsockopt(zmq.SocketOption.RCVHWM, ANSWERS_QUEUED[lane])


def configure_listener(
    socket: zmq.Socket[Any], lane: Lane, address: Address, limits: WireLimits, own: KeyPair | None
) -> None:
    """For a ROUTER, before it binds."""
    _set(socket, {**COMMON, **LISTENER, **_sizes(lane, limits, own is not None), **_family(address)})
    if own is not None:
        encrypt_listener(socket, own)
    socket.setsockopt(zmq.SocketOption.SNDHWM, ANSWERS_QUEUED[lane])
    socket.setsockopt(zmq.SocketOption.RCVHWM, REQUESTS_QUEUED[lane])
    socket.setsockopt(zmq.SocketOption.BACKLOG, CONNECTIONS_WAITING)


def max_frame(lane: Lane, limits: WireLimits) -> int:
    """Bytes of the greatest frame that is received; a peer that announces more is disconnected."""
    payload = limits.control_payload if lane is Lane.CONTROL else limits.bulk_payload
    return max(limits.header, payload)


def _sizes(lane: Lane, limits: WireLimits, encrypted: bool) -> dict[zmq.SocketOption, int]:
    # Checked by libzmq before it allocates the frame, as it is on the wire.
    return {zmq.SocketOption.MAXMSGSIZE: max_frame(lane, limits) + (OVERHEAD if encrypted else 0)}


def _family(address: Address) -> dict[zmq.SocketOption, int]:
    # Off unless asked for: a host without IPv6 must not need it.
    return {zmq.SocketOption.IPV6: int(isinstance(address, TcpAddress) and address.is_ipv6)}


def _set(socket: zmq.Socket[Any], options: Mapping[zmq.SocketOption, int]) -> None:
    for option, value in options.items():
        socket.setsockopt(option, value)
