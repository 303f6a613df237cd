"""Makes the ids that libzmq gives to connections hard to guess."""

from __future__ import annotations

import ctypes
import os


def seed_routing_ids() -> None:
    """Seed the C library's `rand` before a ROUTER is made.

    A ROUTER numbers its connections upwards from a number drawn from `rand`, which nothing seeds: always the
    same. A peer may claim an id of its own in ZMTP's handshake; one that claims a number to come makes
    libzmq abort the process when it gets there (an assertion in `routing_socket_base_t::add_out_pipe`). With
    a seed it would have to guess one of 2**32.
    """
    ctypes.CDLL(None).srand(int.from_bytes(os.urandom(4), "little"))
