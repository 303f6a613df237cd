"""CURVE: what a socket is told of keys, and whose key a message came by."""

from __future__ import annotations

from typing import Any

import zmq

from sidedraft.transport.base import TransportError
from sidedraft.transport.keys import KeyPair, VerifierKeys

OVERHEAD = 33
"""Bytes by which CURVE lengthens a frame: command name, nonce, authenticator, flags."""

_DOMAIN = b"sidedraft"


def check_curve() -> None:
    """Raises TransportError when this libzmq was built without CURVE."""
    if not zmq.has("curve"):
        raise TransportError("keys: this libzmq was built without CURVE; expected one with it")


def encrypt_listener(socket: zmq.Socket[Any], own: KeyPair) -> None:
    """For a ROUTER, before it binds: from now on only peers that the gate admits become connections."""
    socket.setsockopt(zmq.SocketOption.CURVE_SERVER, 1)
    socket.setsockopt(zmq.SocketOption.CURVE_SECRETKEY, own.secret.encode())
    socket.setsockopt(zmq.SocketOption.ZAP_DOMAIN, _DOMAIN)
    # Without a gate that answers, nobody is let in; libzmq's default is to let in everybody then.
    socket.setsockopt(zmq.SocketOption.ZAP_ENFORCE_DOMAIN, 1)


def encrypt_channel(socket: zmq.Socket[Any], keys: VerifierKeys) -> None:
    """For a DEALER, before it connects: only the holder of the server's secret key can answer."""
    socket.setsockopt(zmq.SocketOption.CURVE_SERVERKEY, keys.server.encode())
    socket.setsockopt(zmq.SocketOption.CURVE_PUBLICKEY, keys.own.public.encode())
    socket.setsockopt(zmq.SocketOption.CURVE_SECRETKEY, keys.own.secret.encode())


def key_of(frame: zmq.Frame) -> str:
    """The public key that the sender of a frame proved to have; empty without CURVE."""
    try:
        return str(frame.get("User-Id"))
    except zmq.ZMQError:
        return ""


def failure(kind: int, value: int) -> str:
    """What a monitor's HANDSHAKE_FAILED event means, in words; empty for those that mean nothing certain."""
    if kind == zmq.Event.HANDSHAKE_FAILED_AUTH:
        return "the key is not admitted"
    if kind != zmq.Event.HANDSHAKE_FAILED_PROTOCOL:
        return ""
    if value == zmq.PROTOCOL_ERROR_ZMTP_MECHANISM_MISMATCH:
        return "one side uses keys and the other does not"
    if value == zmq.PROTOCOL_ERROR_ZMTP_CRYPTOGRAPHIC:
        return "it was made for another server's key"
    return "it is an old one played again, or none of this protocol"
