"""Two neighbouring ports: both or neither."""

from __future__ import annotations

import socket

import pytest

from sidedraft.transport.address import AddressError, TcpAddress, parse_address
from sidedraft.transport.base import TransportError
from sidedraft.transport.zmq import ZmqChannel, ZmqListener
from support.transport import neighbouring_ports


def port_of(listener: ZmqListener) -> int:
    address = parse_address(listener.address)
    assert isinstance(address, TcpAddress)
    return address.port


def test_port_zero_reports_the_ports_that_were_chosen() -> None:
    listener = ZmqListener("tcp://127.0.0.1:0")
    port = port_of(listener)
    for lane_port in (port, port + 1):
        socket.create_connection(("127.0.0.1", lane_port), timeout=10).close()
    listener.close()


def test_a_taken_port_is_named_and_the_other_is_left_free() -> None:
    control, bulk = neighbouring_ports()
    with bulk:
        port = control.getsockname()[1]
        control.close()
        with pytest.raises(TransportError, match=f"address tcp://127.0.0.1:{port + 1}: already in use"):
            ZmqListener(f"tcp://127.0.0.1:{port}")
        socket.create_server(("127.0.0.1", port)).close()


def test_an_address_of_another_host_is_named() -> None:
    with pytest.raises(TransportError, match=r"tcp://203\.0\.113\.1:7000: cannot be bound"):
        ZmqListener("tcp://203.0.113.1:7000", insecure_plain_text=True)


def test_the_address_policy_holds_for_both_ends() -> None:
    for end in (ZmqChannel, ZmqListener):
        with pytest.raises(AddressError, match="insecure_plain_text"):
            end("tcp://192.0.2.1:7000")
        with pytest.raises(AddressError, match="ipc://PATH or tcp://HOST:PORT"):
            end("http://127.0.0.1:7000")
