"""Keys decide who comes in: whoever has none, a wrong one or a revoked one has no connection, and no line of
the log more than the first. What was recorded of a handshake opens nothing."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from sidedraft.settings import WireLimits
from sidedraft.transport.base import Connected, Disconnected, Lane, TransportError
from sidedraft.transport.keys import VerifierKeys, make_pair
from sidedraft.transport.zmq import ZmqChannel, ZmqListener, gate
from support.keys import KeyRing
from support.transport import PATIENCE, connected, gone, message, until
from support.zmtp import frame, is_closed, plug, shake_hands

LIMITS = WireLimits(header=1024, control_rows=4096, control_payload=8192, bulk_payload=1 << 16)
WHOLE = [b"header", bytes(LIMITS.control_payload)]


@pytest.fixture
def ring(tmp_path: Path) -> KeyRing:
    ring = KeyRing(tmp_path / "keys")
    for name in ("canary", "engine-a", "engine-b"):
        ring.make(name)
    ring.list("canary", "engine-a")
    return ring


@pytest.fixture(params=["ipc", "tcp"])
def listener(request: pytest.FixtureRequest, ring: KeyRing, tmp_path: Path) -> Iterator[ZmqListener]:
    listener = ring.listen(f"ipc://{tmp_path}/s/d.sock" if request.param == "ipc" else "tcp://127.0.0.1:0")
    yield listener
    listener.close()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "LOOK_INTERVAL", 0.0)


@contextlib.contextmanager
def polled(listener: ZmqListener) -> Iterator[list[object]]:
    """The listener's thread, in place of a server's: handshakes need somebody who answers for the keys."""
    events: list[object] = []
    stop = threading.Event()

    def poll() -> None:
        while not stop.is_set():
            events.extend(listener.poll(0.01))

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield events
    finally:
        stop.set()
        thread.join()


def link(listener: ZmqListener, channel: ZmqChannel) -> None:
    with polled(listener):
        connected(channel)


def served(listener: ZmqListener, channel: ZmqChannel) -> bytes:
    """A message up and one down; returns the peer."""
    assert channel.send(Lane.CONTROL, [b"ping"])
    received = message(listener)
    assert listener.send(received.peer, Lane.CONTROL, [b"pong"])
    assert bytes(message(channel).frames[0]) == b"pong"
    return received.peer


def lines(caplog: pytest.LogCaptureFixture, name: str = "gate") -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.endswith(name)]


def never_up(listener: ZmqListener, channel: ZmqChannel, seconds: float = 0.6) -> None:
    """The channel tries for a while and gets nowhere; the listener hears nothing of it."""
    until_then = time.monotonic() + seconds
    with polled(listener) as events:
        while time.monotonic() < until_then:
            assert channel.poll(0.02) == []
            assert not channel.send(Lane.CONTROL, [b"let me in"])
    assert events == []


def test_both_lanes_carry_whole_frames_of_the_greatest_size_and_say_who_sent_them(
    ring: KeyRing, tmp_path: Path
) -> None:
    ring.list(**{"engine-a": "default,team-a"})
    listener = ring.listen(f"ipc://{tmp_path}/d.sock")
    channel = ring.connect(listener, "engine-a")
    link(listener, channel)
    great = {Lane.CONTROL: WireLimits().control_payload, Lane.BULK: WireLimits().bulk_payload}
    for lane, size in great.items():
        assert channel.send(lane, [b"header", b"\x5a" * size])
        received = message(listener)
        assert (received.lane, bytes(received.frames[1])) == (lane, b"\x5a" * size)
        client = listener.client(received.peer, lane)
        assert client is not None
        assert (client.name, client.namespaces) == ("engine-a", ("default", "team-a"))
    channel.close()
    listener.close()


def test_a_frame_above_the_limit_ends_the_connection_of_a_known_client_too(ring: KeyRing) -> None:
    listener = ring.listen()
    channel = ZmqChannel(listener.address, WireLimits(control_payload=1 << 26), keys=ring.keys("engine-a"))
    link(listener, channel)
    assert channel.send(Lane.CONTROL, [b"header", bytes((1 << 21) + 1)])
    with polled(listener):
        gone(channel)
    channel.close()
    listener.close()


@pytest.mark.parametrize("kind", ["unknown", "server's", "none"])
def test_a_peer_without_the_right_keys_gets_nowhere_and_costs_one_line(
    ring: KeyRing, listener: ZmqListener, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    canary = ring.connect(listener, "canary")
    link(listener, canary)
    peer = served(listener, canary)
    stranger = {
        "unknown": lambda: ring.connect(listener, "engine-b"),
        "server's": lambda: ZmqChannel(
            listener.address, keys=VerifierKeys(make_pair().public, ring.keys("engine-a").own)
        ),
        "none": lambda: ZmqChannel(listener.address),
    }[kind]()
    never_up(listener, stranger)
    says = {
        "unknown": f"its key {ring.keys('engine-b').own.public} is not in {ring.clients}",
        "server's": "refused a handshake: it was made for another server's key",
        "none": "refused a handshake: one side uses keys and the other does not",
    }[kind]
    (line,) = lines(caplog)  # although it tried again and again, on two lanes
    assert says in line
    ours = lines(caplog, "dealer_lane")
    assert ours
    assert len(set(ours)) == len(ours), "at the verifier's end no line twice"
    assert served(listener, canary) == peer
    stranger.close()
    canary.close()


def test_keys_are_no_use_with_a_server_that_has_none(caplog: pytest.LogCaptureFixture, ring: KeyRing) -> None:
    listener = ZmqListener("tcp://127.0.0.1:0")
    channel = ring.connect(listener, "engine-a")
    never_up(listener, channel, 0.3)
    assert {"one side uses keys" in line for line in lines(caplog, "dealer_lane")} == {True}
    channel.close()
    listener.close()


def test_a_revoked_key_ends_what_runs_and_is_refused_from_then_on(
    ring: KeyRing, listener: ZmqListener, caplog: pytest.LogCaptureFixture
) -> None:
    canary, channel = ring.connect(listener, "canary"), ring.connect(listener, "engine-a")
    for one in (canary, channel):
        link(listener, one)
    peer, kept = served(listener, channel), served(listener, canary)
    assert channel.send(Lane.BULK, [b"header", b"rows"])
    bulk = message(listener).peer
    assert channel.send(Lane.CONTROL, [b"on its way"])
    time.sleep(0.05)
    ring.list("canary")
    events: list[object] = []
    until_then = time.monotonic() + PATIENCE
    while sum(isinstance(event, Disconnected) for event in events) < 2 and time.monotonic() < until_then:
        events += listener.poll(0.01)
    assert events == [
        Disconnected(Lane.CONTROL, peer, "its key was revoked"),
        Disconnected(Lane.BULK, bulk, "its key was revoked"),
    ], "what was on its way is not delivered"
    with polled(listener):
        until(channel, lambda seen: {e.lane for e in seen if isinstance(e, Disconnected)} == set(Lane))
    never_up(listener, channel)
    assert served(listener, canary) == kept
    ended, refused = (line for line in lines(caplog) if "engine-a" in line or "refused" in line)
    assert "ended a connection of engine-a: its key was revoked" in ended
    assert f"its key {ring.keys('engine-a').own.public} was revoked" in refused
    ring.list("canary", "engine-a")
    with polled(listener):
        connected(channel)  # without a restart of either side
    channel.close()
    canary.close()


def test_a_key_revoked_before_its_first_message_brings_none(ring: KeyRing, listener: ZmqListener) -> None:
    channel = ring.connect(listener, "engine-a")
    link(listener, channel)
    ring.list("canary")
    channel.send(Lane.CONTROL, [b"too late"])
    with polled(listener) as events:
        gone(channel)
    assert events == []
    channel.close()


def test_changed_rights_hold_at_once(ring: KeyRing, listener: ZmqListener) -> None:
    channel = ring.connect(listener, "engine-a")
    link(listener, channel)
    served(listener, channel)
    ring.list("canary", **{"engine-a": "other"})
    with polled(listener):
        gone(channel)
        until(channel, lambda events: Connected(Lane.CONTROL) in events)
    client = listener.client(served(listener, channel), Lane.CONTROL)
    assert client is not None
    assert client.namespaces == ("other",)
    channel.close()


def test_a_wrong_list_keeps_everybody(
    ring: KeyRing, listener: ZmqListener, caplog: pytest.LogCaptureFixture
) -> None:
    channel = ring.connect(listener, "engine-a")
    link(listener, channel)
    peer = served(listener, channel)
    ring.list(text="engine-a oops")
    for _ in range(5):
        assert served(listener, channel) == peer
    (line,) = lines(caplog, "clients")
    assert "line 1: a key of 4 characters" in line
    channel.close()


class Recorder(threading.Thread):
    """Stands between a channel and a listener, and keeps what the channel says."""

    def __init__(self, target: tuple[str, int], ports: list[socket.socket]) -> None:
        super().__init__(daemon=True)
        self.target, self.ports = target, ports
        self.said: list[bytearray] = []
        self.start()

    def run(self) -> None:
        links: dict[socket.socket, tuple[socket.socket, bytearray | None]] = {}
        with contextlib.suppress(OSError, ValueError):
            while True:
                for ready in select.select([*self.ports, *links], [], [])[0]:
                    if ready in self.ports:
                        near, _ = ready.accept()
                        host, port = self.target
                        far = socket.create_connection((host, port + self.ports.index(ready)))
                        said = bytearray()
                        self.said.append(said)
                        links[near], links[far] = (far, said), (near, None)
                    else:
                        other, said_here = links[ready]
                        data = ready.recv(65536)
                        if said_here is not None:
                            said_here += data
                        other.sendall(data)
                        if not data:
                            return


def test_a_recorded_handshake_opens_nothing(ring: KeyRing, caplog: pytest.LogCaptureFixture) -> None:
    from support.transport import neighbouring_ports

    listener = ring.listen()
    host, _, port = listener.address.removeprefix("tcp://").rpartition(":")
    ports = neighbouring_ports()
    recorder = Recorder((host, int(port)), list(ports))
    channel = ZmqChannel(f"tcp://127.0.0.1:{ports[0].getsockname()[1]}", keys=ring.keys("engine-a"))
    link(listener, channel)
    peer = served(listener, channel)
    assert lines(caplog) == []
    control = max(recorder.said, key=len)  # the one that carried a message, too
    assert len(control) > 64 + 200 + 250, "greeting, HELLO and INITIATE"
    with polled(listener) as events:
        for _ in range(5):
            with plug(listener.address) as replay:
                replay.sendall(control)
                assert is_closed(replay)
    assert events == []
    assert served(listener, channel) == peer
    (line,) = lines(caplog)
    assert "an old one played again" in line
    channel.close()
    for one in ports:
        one.close()
    listener.close()


def test_without_keys_by_hand(ring: KeyRing, listener: ZmqListener) -> None:
    """Neither ZMTP 3's NULL nor the versions before it, which knew no keys, are a way around."""
    for opening in (
        b"",
        b"\x01\x00",
        b"\xff\0\0\0\0\0\0\0\x01\x7f\x01\x05\0\0",
        b"\xff\0\0\0\0\0\0\0\x01\x7f\0",
    ):
        with polled(listener) as events, plug(listener.address) as bare:
            if opening:
                bare.sendall(opening + frame(b"hello") * 3)
            else:
                with contextlib.suppress(OSError):
                    shake_hands(bare)
                    bare.sendall(frame(b"hello"))
            assert is_closed(bare)
        assert events == []


def test_without_somebody_who_answers_for_the_keys_nobody_comes_in(
    ring: KeyRing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libzmq's own default is to let in everybody then."""
    monkeypatch.setattr(gate.Gate, "read", lambda _: None)
    monkeypatch.setattr(gate, "_ENDPOINT", "inproc://elsewhere")
    listener = ring.listen()
    channel = ring.connect(listener, "engine-a")
    never_up(listener, channel)
    channel.close()
    listener.close()


def test_two_listeners_of_one_process_have_lists_of_their_own(ring: KeyRing, tmp_path: Path) -> None:
    other = KeyRing(tmp_path / "other")
    other.make("engine-a")
    other.list("engine-a")
    listeners = [ring.listen(), other.listen()]
    for rights, listener in zip((ring, other), listeners, strict=True):
        channel = rights.connect(listener, "engine-a")
        link(listener, channel)
        served(listener, channel)
        channel.close()
        listener.close()


def test_a_libzmq_without_curve_is_an_error(ring: KeyRing, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmq, "has", lambda _: False)
    with pytest.raises(TransportError, match="without CURVE"):
        ring.listen()
    with pytest.raises(TransportError, match="without CURVE"):
        ZmqChannel("tcp://127.0.0.1:1", keys=ring.keys("engine-a"))


def test_other_hosts_may_be_named_with_keys(ring: KeyRing) -> None:
    channel = ZmqChannel("tcp://203.0.113.1:7000", keys=ring.keys("engine-a"))
    channel.close()
    listener = ring.listen("tcp://0.0.0.0:0")
    listener.close()
