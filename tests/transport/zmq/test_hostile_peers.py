"""Peers that break the rules hurt themselves only: a canary beside them is served throughout."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidedraft.settings import MIB, WireLimits
from sidedraft.transport.base import Connected, Disconnected, Event, Lane, Received
from sidedraft.transport.zmq import ZmqChannel, ZmqListener, connection, dealer_lane, router_lane
from support.transport import PATIENCE, Canary, connected, gone, message, neighbouring_ports, until
from support.zmtp import GREETING, frame, frame_header, is_closed, plug, shake_hands

LIMIT = 8 * MIB


@pytest.fixture(params=["ipc", "tcp"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/s/draft.sock" if request.param == "ipc" else "tcp://127.0.0.1:0"


@pytest.fixture
def listener(address: str) -> Iterator[ZmqListener]:
    listener = ZmqListener(address, undelivered_limit=LIMIT)
    yield listener
    listener.close()


@pytest.fixture
def canary(listener: ZmqListener) -> Iterator[Canary]:
    canary = Canary(listener)
    yield canary
    canary.check()
    canary.close()


def resident() -> int:
    """Bytes of memory this process has."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise LookupError("VmRSS")


@pytest.mark.parametrize("lane", Lane)
def test_a_frame_above_the_limit_ends_the_connection_before_it_is_allocated(
    listener: ZmqListener, canary: Canary, lane: Lane
) -> None:
    before = resident()
    with plug(listener.address, lane) as bare:
        shake_hands(bare)
        bare.sendall(frame_header(10 << 30))
        assert is_closed(bare)
    canary.check()
    assert resident() - before < 64 * MIB


def test_a_verifier_that_sends_too_much_is_disconnected_and_comes_back(
    listener: ZmqListener, canary: Canary
) -> None:
    channel = ZmqChannel(listener.address, WireLimits(control_payload=64 * MIB))
    connected(channel)
    assert channel.send(Lane.CONTROL, [b"header", bytes(3 * MIB)])
    gone(channel)
    until(channel, lambda events: Connected(Lane.CONTROL) in events)
    assert channel.send(Lane.CONTROL, [b"modest"])
    assert bytes(message(listener).frames[0]) == b"modest"
    channel.close()


def test_a_message_of_many_frames_ends_its_connection(listener: ZmqListener, canary: Canary) -> None:
    with plug(listener.address) as bare:
        shake_hands(bare)
        bare.sendall(frame(b"good"))
        peer = message(listener).peer
        bare.sendall(frame(b"a", more=True) * 1000 + frame(b"z"))
        bare.sendall(frame(b"never seen"))
        events = until(listener, lambda seen: any(isinstance(event, Disconnected) for event in seen))
        assert events == [Disconnected(Lane.CONTROL, peer, "a message of no frame or more than 2")]
        assert is_closed(bare)


def test_noise_of_any_kind_passes_by(listener: ZmqListener, canary: Canary) -> None:
    noise = random.Random(7)
    announced: set[bytes] = set()
    for lane in Lane:
        for opening in (b"", GREETING, GREETING[:10], b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64):
            with plug(listener.address, lane) as bare, contextlib.suppress(OSError):  # it may close at once
                bare.sendall(opening + noise.randbytes(4096))
            canary.check()
    # What looks like ZMTP 1 may be a peer for a moment; it leaves as it came.
    for event in listener.poll(0.1):
        if isinstance(event, Connected):
            announced.add(event.peer)
        elif isinstance(event, Disconnected):
            announced.discard(event.peer)
    for peer in announced:
        gone(listener, peer)


def test_a_claimed_id_does_not_take_over_a_connection(listener: ZmqListener, canary: Canary) -> None:
    with plug(listener.address) as bare:
        shake_hands(bare, identity=canary.peer)
        bare.sendall(frame(b"I am the canary"))
        for _ in range(20):
            assert canary.check() == canary.peer


def heard(listener: ZmqListener, identity: bytes, text: bytes) -> list[Event]:
    """Events of a peer that claims an id and says one thing; it comes again until it was heard.

    libzmq tells that a connection has ended before it gives its id free: for that, its I/O thread and the
    socket's own have to answer each other. Who claims the id in between is not heard at all.
    """
    events: list[Event] = []
    give_up = time.monotonic() + PATIENCE
    while not any(isinstance(event, Received) and event.peer == identity for event in events):
        assert time.monotonic() < give_up, f"not heard; so far: {events}"
        with plug(listener.address) as bare:
            shake_hands(bare, identity=identity)
            bare.sendall(frame(text))
            patience = time.monotonic() + 0.5
            while time.monotonic() < patience and not any(isinstance(event, Received) for event in events):
                events += listener.poll(0.05)
    return events


def test_an_id_that_is_used_again_is_another_peer(listener: ZmqListener, canary: Canary) -> None:
    for text in (b"first", b"second"):
        events = [event for event in heard(listener, b"chosen", text) if event.peer == b"chosen"]
        assert [type(event) for event in events] == [Connected, Received]
        gone(listener, b"chosen")


def test_connections_beyond_the_bound_are_ended(
    listener: ZmqListener, canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_lane, "MOST_CONNECTIONS", 3)
    with contextlib.ExitStack() as held:
        bare = [held.enter_context(plug(listener.address)) for _ in range(2)]
        for within in bare:
            shake_hands(within)
        canary.check()
        beyond = held.enter_context(plug(listener.address))
        canary.check()
        assert is_closed(beyond)
        bare[0].sendall(frame(b"still served"))
        assert bytes(message(listener).frames[0]) == b"still served"
    canary.check()


def test_a_server_that_sends_more_than_the_limit_is_disconnected(listener: ZmqListener) -> None:
    channel = ZmqChannel(listener.address, WireLimits(header=1024, control_rows=1024, control_payload=4096))
    connected(channel)
    assert channel.send(Lane.CONTROL, [b"hello"])
    peer = message(listener).peer
    assert listener.send(peer, Lane.CONTROL, [b"header", bytes(4096)])
    assert len(message(channel).frames[1]) == 4096
    assert listener.send(peer, Lane.CONTROL, [b"header", bytes(4097)])
    assert gone(channel).lane is Lane.CONTROL
    channel.close()


def test_a_server_of_another_user_is_not_spoken_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection, "peer_user", lambda descriptor, identity: 54321)
    listener = ZmqListener(f"ipc://{tmp_path}/draft.sock")
    channel = ZmqChannel(listener.address)
    for _ in range(20):
        assert channel.poll(0.02) == []
        assert not channel.send(Lane.CONTROL, [b"secret"])
    assert listener.poll(0) == []
    assert [record.getMessage().count("user 54321") for record in caplog.records] == [1, 1]  # a line a lane
    channel.close()
    listener.close()


def test_ids_of_connections_are_hard_to_guess() -> None:
    ids = set()
    for _ in range(3):
        listener = ZmqListener("tcp://127.0.0.1:0")
        canary = Canary(listener)
        ids.add(int.from_bytes(canary.peer, "big"))
        canary.close()
        listener.close()
    low, _middle, high = sorted(ids)
    assert high - low > 1000  # numbers follow each other inside a socket, and without a seed in all of them


class EndlessMultipart(threading.Thread):
    """Sends frames of one message for ever, from a thread as `sendall` blocks; stops when it is cut off."""

    def __init__(self, bare: socket.socket, most: int) -> None:
        super().__init__(daemon=True)
        self._bare, self._most = bare, most
        self.sent = 0

    def run(self) -> None:
        part = frame(bytes(MIB), more=True)
        try:
            while self.sent < self._most:
                self._bare.sendall(part)
                self.sent += len(part)
        except OSError:
            pass


def test_an_endless_multipart_over_tcp_is_found_and_ended() -> None:
    listener = ZmqListener("tcp://127.0.0.1:0", undelivered_limit=LIMIT)
    canary = Canary(listener)
    before = resident()
    with plug(listener.address) as bare:
        shake_hands(bare)
        bare.sendall(frame(b"known"))
        peer = message(listener).peer
        flood = EndlessMultipart(bare, most=8 << 30)
        flood.start()
        assert gone(listener, peer).reason == "a message without end"
        flood.join(30)
        assert flood.sent < flood._most
    assert canary.check() == canary.peer
    assert resident() - before < 512 * MIB
    canary.close()
    listener.close()


def test_much_data_in_whole_messages_is_no_endless_multipart() -> None:
    listener = ZmqListener("tcp://127.0.0.1:0", undelivered_limit=LIMIT)
    canary = Canary(listener)
    payload = bytes(MIB)
    received = 0
    while received < 64:
        while canary.channel.send(Lane.BULK, [b"header", payload]):
            pass
        received += sum(isinstance(event, Received) for event in listener.poll(0.1))
    assert canary.check() == canary.peer
    canary.close()
    listener.close()


class BadServer:
    """Listens at a tcp port pair and lets the test speak to the channel's control connection."""

    def __init__(self) -> None:
        self.control, self.bulk = neighbouring_ports()
        self.port = self.control.getsockname()[1]
        self.control.settimeout(30)

    def close(self) -> None:
        self.control.close()
        self.bulk.close()


def test_a_channel_survives_a_server_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dealer_lane, "RECONNECT_STALLED", 0.2)
    bad = BadServer()
    channel = ZmqChannel(f"tcp://127.0.0.1:{bad.port}")
    accepted, _ = bad.control.accept()
    with accepted:
        accepted.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" + bytes(100))
        # libzmq gives up for good after such a peer; the channel starts over by itself.
        polling = threading.Event()
        poller = threading.Thread(target=lambda: [channel.poll(0.05) for _ in iter(polling.is_set, True)])
        poller.start()
        try:
            again, _ = bad.control.accept()
            again.close()
        finally:
            polling.set()
            poller.join(30)
    bad.close()
    listener = ZmqListener(f"tcp://127.0.0.1:{bad.port}")
    connected(channel)
    assert channel.send(Lane.CONTROL, [b"at last"])
    assert bytes(message(listener).frames[0]) == b"at last"
    channel.close()
    listener.close()


@pytest.mark.parametrize("endless", [False, True])
def test_a_channel_leaves_a_server_that_breaks_the_rules(endless: bool) -> None:
    bad = BadServer()
    channel = ZmqChannel(f"tcp://127.0.0.1:{bad.port}", undelivered_limit=LIMIT)
    accepted, _ = bad.control.accept()
    with accepted:
        shake_hands(accepted, kind=b"ROUTER")
        until(channel, lambda events: Connected(Lane.CONTROL) in events)
        accepted.sendall(frame(b"good") + frame(b"also good"))
        until(channel, lambda events: sum(isinstance(event, Received) for event in events) == 2)
        if endless:
            EndlessMultipart(accepted, most=8 << 30).start()
        else:
            accepted.sendall(frame(b"a", more=True) * 2 + frame(b"z") + frame(b"never seen"))
        events = until(channel, lambda seen: any(isinstance(event, Disconnected) for event in seen))
        reason = "a message without end" if endless else "a message of more than 2 frames"
        assert events == [Disconnected(Lane.CONTROL, reason=reason)]
    again, _ = bad.control.accept()  # it keeps trying
    again.close()
    channel.close()
    bad.close()
