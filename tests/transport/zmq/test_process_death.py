"""Processes that are killed or stopped, and what the other end sees."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sidedraft.transport.base import Disconnected, Lane
from sidedraft.transport.zmq import ZmqChannel, ZmqListener
from support.transport import Canary, connected, gone, message, until

SERVER = """
import sys
from sidedraft.transport.zmq import ZmqListener
from sidedraft.transport.base import Received
listener = ZmqListener(sys.argv[1])
print(listener.address, flush=True)
while True:
    for event in listener.poll(60):
        if isinstance(event, Received):
            listener.send(event.peer, event.lane, event.frames)
"""

VERIFIER = """
import sys
from sidedraft.transport.zmq import ZmqChannel
from sidedraft.transport.base import Connected, Lane
channel = ZmqChannel(sys.argv[1])
up = set()
while len(up) < 2:
    up |= {event.lane for event in channel.poll(60) if isinstance(event, Connected)}
for lane in Lane:
    channel.send(lane, [b"hello"])
print("sent", flush=True)
while True:
    channel.poll(60)
"""

UNREAD = """
import sys, time
from sidedraft.transport.base import Connected, Lane
from sidedraft.transport.zmq import ZmqChannel, ZmqListener

def fill(send):
    message = [bytes(100_000)]
    give_up = time.monotonic() + 30
    while send(message):
        assert time.monotonic() < give_up

def connected(listener):
    channel = ZmqChannel(listener.address)
    while not channel.send(Lane.CONTROL, [b"hello"]):
        channel.poll(0.01)
    while not (events := listener.poll(0.01)):
        pass
    return channel, events[0].peer

listener = ZmqListener(sys.argv[1])
channel, _ = connected(listener)
fill(lambda message: channel.send(Lane.CONTROL, message))
other_listener = ZmqListener(sys.argv[1].replace("draft", "other"))
other_channel, peer = connected(other_listener)
fill(lambda message: other_listener.send(peer, Lane.CONTROL, message))
channel.close()
other_listener.close()
time.sleep(2.5)
assert len(listener.poll(1)) > 0 and len(other_channel.poll(1)) > 0
print("alive", flush=True)
"""


@contextmanager
def child(script: str, address: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that runs `script`, and the line it prints when it is ready."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, address],
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait(30)
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture(params=["ipc", "tcp"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/s/draft.sock" if request.param == "ipc" else "tcp://127.0.0.1:0"


def test_a_killed_server_is_noticed_and_its_address_taken_over(address: str) -> None:
    with child(SERVER, address) as (process, bound):
        channel = ZmqChannel(bound)
        connected(channel)
        assert channel.send(Lane.CONTROL, [b"echo"])
        assert bytes(message(channel).frames[0]) == b"echo"
        process.send_signal(signal.SIGKILL)
        events = until(channel, lambda seen: len(seen) >= 2)
        assert {event.lane for event in events if isinstance(event, Disconnected)} == set(Lane)
        assert not channel.send(Lane.CONTROL, [b"nobody"])
        process.wait(30)
    listener = ZmqListener(bound)  # its socket files were left behind
    connected(channel)
    assert channel.send(Lane.CONTROL, [b"again"])
    assert bytes(message(listener).frames[0]) == b"again"
    channel.close()
    listener.close()


def test_a_killed_verifier_is_noticed_on_both_lanes(address: str) -> None:
    listener = ZmqListener(address)
    with child(VERIFIER, listener.address) as (process, ready):
        assert ready == "sent"
        peers = {event.lane: event.peer for event in until(listener, lambda seen: len(seen) >= 4)}
        process.send_signal(signal.SIGKILL)
        events = until(listener, lambda seen: len(seen) >= 2)
        assert {event.lane: event.peer for event in events if isinstance(event, Disconnected)} == peers
    assert not listener.send(peers[Lane.CONTROL], Lane.CONTROL, [b"nobody"])
    listener.close()


def test_a_stopped_verifier_stops_nobody(address: str) -> None:
    listener = ZmqListener(address)
    with child(VERIFIER, listener.address) as (process, ready):
        assert ready == "sent"
        events = until(listener, lambda seen: len(seen) >= 4)
        (stopped,) = {event.peer for event in events if event.lane is Lane.CONTROL}
        process.send_signal(signal.SIGSTOP)
        canary = Canary(listener)
        answer = b"x" * 100_000
        taken = next(n for n in range(10_000) if not listener.send(stopped, Lane.CONTROL, [answer]))
        assert taken > 0
        canary.check()
        listener.drop(stopped, Lane.CONTROL)
        assert gone(listener, stopped).reason == "dropped"
        canary.check()
        canary.close()
    listener.close()


def test_an_end_that_does_not_read_for_seconds_outlives_its_peer(address: str) -> None:
    """libzmq's own timers must find nothing to stumble over: it would abort the whole process."""
    with child(UNREAD, address) as (process, said):
        assert said == "alive"
        assert process.wait(30) == 0
