"""What may be written as an address, and which endpoints it stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidedraft.transport.address import (
    MAX_PATH,
    AddressError,
    default_address,
    for_binding,
    for_connecting,
    parse_address,
)
from sidedraft.transport.base import Lane, TransportError


@pytest.mark.parametrize(
    ("text", "control", "bulk"),
    [
        ("ipc:///run/x/d.sock", "ipc:///run/x/d.sock", "ipc:///run/x/d.sock.bulk"),
        ("tcp://127.0.0.1:7000", "tcp://127.0.0.1:7000", "tcp://127.0.0.1:7001"),
        ("tcp://localhost:7000", "tcp://127.0.0.1:7000", "tcp://127.0.0.1:7001"),
        ("tcp://127.9.8.7:1", "tcp://127.9.8.7:1", "tcp://127.9.8.7:2"),
        ("tcp://[::1]:7000", "tcp://[::1]:7000", "tcp://[::1]:7001"),
    ],
)
def test_each_lane_has_its_endpoint(text: str, control: str, bulk: str) -> None:
    address = parse_address(text)
    assert address.endpoint(Lane.CONTROL) == str(address) == control
    assert address.endpoint(Lane.BULK) == bulk


@pytest.mark.parametrize(
    "text",
    [
        "",
        "7000",
        "127.0.0.1:7000",
        "udp://127.0.0.1:7000",
        "ipc://",
        "ipc://relative.sock",
        "ipc://@abstract",
        "ipc://*",
        "ipc:///folder/",
        "ipc:///nul\0byte",
        "ipc:///" + "x" * MAX_PATH,
        "ipc:///tmp/\udcff.sock",
        "tcp://127.0.0.1",
        "tcp://127.0.0.1:",
        "tcp://127.0.0.1:65535",
        "tcp://127.0.0.1:70000",
        "tcp://127.0.0.1:-1",
        "tcp://127.0.0.1:7000/path",
        "tcp://:7000",
        "tcp://::1:7000",
        "tcp://[:::]:7000",
    ],
)
def test_anything_else_is_refused_by_name(text: str) -> None:
    with pytest.raises(AddressError, match=r"^address: .* is not allowed; expected ") as caught:
        parse_address(text)
    assert isinstance(caught.value, TransportError)


@pytest.mark.parametrize(
    "host", ["*", "0.0.0.0", "192.168.1.5", "10.0.0.1", "[::]", "[2001:db8::1]", "draft.example"]
)
def test_other_hosts_need_the_flag_that_says_plain_text(host: str) -> None:
    with pytest.raises(AddressError, match="insecure_plain_text"):
        parse_address(f"tcp://{host}:7000")
    address = parse_address(f"tcp://{host}:7000", open_to_others=True)
    assert address.endpoint(Lane.BULK) == f"tcp://{host}:7001"


def test_a_listener_needs_a_number_and_a_channel_a_port() -> None:
    named = parse_address("tcp://draft.example:7000", open_to_others=True)
    everywhere = parse_address("tcp://*:7000", open_to_others=True)
    any_port = parse_address("tcp://127.0.0.1:0")
    assert for_connecting(named) is named
    assert for_binding(everywhere) is everywhere
    assert for_binding(any_port) is any_port
    for address in (everywhere, any_port):
        with pytest.raises(AddressError, match="connect to"):
            for_connecting(address)
    with pytest.raises(AddressError, match="numeric host"):
        for_binding(named)


def test_the_longest_path_leaves_room_for_the_bulk_lane() -> None:
    address = parse_address("ipc:///" + "x" * (MAX_PATH - 1))
    assert len(address.endpoint(Lane.BULK)) - len("ipc://") <= 107


def test_the_default_is_in_the_runtime_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/7")
    assert default_address() == "ipc:///run/user/7/sidedraft/draft.sock"
    assert parse_address(default_address()).endpoint(Lane.CONTROL).startswith("ipc://")


def test_paths_keep_their_bytes() -> None:
    address = parse_address("ipc:///tmp/a b/é.sock")
    assert str(address) == "ipc:///tmp/a b/é.sock"
    assert getattr(address, "path", None) == Path("/tmp/a b/é.sock")
