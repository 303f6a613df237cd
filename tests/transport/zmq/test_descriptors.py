"""Descriptors whose numbers are used again."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from sidedraft.transport.zmq.descriptors import bytes_received, identity_of, peer_user, shut_down


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    for end in (near, far):
        end.settimeout(30)
    return near, far


def test_a_tcp_connection_counts_what_its_peer_sent() -> None:
    near, far = tcp_pair()
    with near, far:
        identity = identity_of(far.fileno())
        assert bytes_received(far.fileno(), identity) == 0
        near.sendall(b"x" * 5000)
        far.recv(5000, socket.MSG_WAITALL)
        assert bytes_received(far.fileno(), identity) == 5000


def test_a_unix_connection_has_no_count() -> None:
    near, far = socket.socketpair()
    with near, far:
        assert bytes_received(far.fileno(), identity_of(far.fileno())) is None


def test_a_unix_connection_knows_the_user_at_its_other_end() -> None:
    near, far = socket.socketpair()
    with near, far:
        assert peer_user(far.fileno(), identity_of(far.fileno())) == os.geteuid()
    near, far = tcp_pair()
    with near, far:
        assert peer_user(far.fileno(), identity_of(far.fileno())) is None


def test_shutting_down_is_seen_by_both_ends() -> None:
    near, far = tcp_pair()
    with near, far:
        assert shut_down(far.fileno(), identity_of(far.fileno()))
        assert near.recv(1) == far.recv(1) == b""
        assert not shut_down(-1, None)


def test_a_number_that_means_another_connection_by_now_is_left_alone() -> None:
    near, far = tcp_pair()
    innocent, other = tcp_pair()
    number, identity = far.fileno(), identity_of(far.fileno())
    far.close()
    with near, innocent, other:
        os.dup2(other.fileno(), number)
        with socket.socket(fileno=number):
            assert not shut_down(number, identity)
            assert bytes_received(number, identity) is None
            innocent.sendall(b"still there")
            assert other.recv(11) == b"still there"


def test_a_number_that_means_a_file_by_now_is_left_alone_and_nothing_leaks(tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        number = file.fileno()
        before = len(os.listdir("/proc/self/fd"))
        for identity in (None, (0, 0), identity_of(number)):
            assert not shut_down(number, identity)
            assert bytes_received(number, identity) is None
        assert len(os.listdir("/proc/self/fd")) == before
