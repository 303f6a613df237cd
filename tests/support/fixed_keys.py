"""Key pairs that are the same in every process, as names of tests have to be."""

from __future__ import annotations

import zmq
from zmq.utils import z85

from sidedraft.transport.keys import KeyPair


def fixed_pair(number: int) -> KeyPair:
    """A valid pair of a secret made of one byte, 1 to 255."""
    secret = z85.encode(bytes([number]) * 32)
    return KeyPair(zmq.curve_public(secret).decode(), secret.decode())
