"""What `transport.base` promises, kept by the fake and by ZeroMQ over ipc and tcp alike."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sidedraft.transport.base import (
    Channel,
    Connected,
    Disconnected,
    Lane,
    Listener,
    Received,
    TransportError,
)
from sidedraft.transport.fake import FakeNetwork, VirtualClock
from sidedraft.transport.zmq import ZmqChannel, ZmqListener
from support.transport import connected, gone, message, messages, until


class World:
    """Makes ends of one kind and closes them at the end."""

    def __init__(self, listen: Callable[[], Listener], connect: Callable[[], Channel]) -> None:
        self._listen, self._connect = listen, connect
        self._ends: list[Channel | Listener] = []

    def listen(self) -> Listener:
        self._ends.append(listener := self._listen())
        return listener

    def connect(self) -> Channel:
        self._ends.append(channel := self._connect())
        return channel

    def pair(self) -> tuple[Listener, Channel]:
        listener, channel = self.listen(), self.connect()
        connected(channel)
        return listener, channel

    def close(self) -> None:
        for end in self._ends:
            end.close()


def over_zmq(address: str) -> World:
    bound: list[str] = [address]

    def listen() -> Listener:
        listener = ZmqListener(bound[0])
        bound[0] = listener.address
        return listener

    return World(listen, lambda: ZmqChannel(bound[0]))


@pytest.fixture(params=["fake", "ipc", "tcp"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    match request.param:
        case "fake":
            network = FakeNetwork(VirtualClock())
            made = World(network.listen, network.connect)
        case "ipc":
            made = over_zmq(f"ipc://{tmp_path}/s/draft.sock")
        case _:
            made = over_zmq("tcp://127.0.0.1:0")
    yield made
    made.close()


@pytest.mark.parametrize("lane", Lane)
@pytest.mark.parametrize("size", [0, 1, 200, 70_000, 4 << 20])
def test_frames_arrive_as_they_were_sent(world: World, lane: Lane, size: int) -> None:
    if lane is Lane.CONTROL and size > 1 << 20:
        size = 2 << 20
    listener, channel = world.pair()
    payload = bytes(itertools.islice(itertools.cycle(range(251)), size))
    assert channel.send(lane, [b"header", payload])
    up = message(listener)
    assert (up.lane, [bytes(frame) for frame in up.frames]) == (lane, [b"header", payload])
    assert listener.send(up.peer, lane, [payload])
    down = message(channel)
    assert (down.lane, down.peer, [bytes(frame) for frame in down.frames]) == (lane, b"", [payload])


def test_a_peer_is_announced_before_its_first_message_and_its_lanes_differ(world: World) -> None:
    listener, channel = world.pair()
    assert channel.send(Lane.CONTROL, [b"a"])
    assert channel.send(Lane.BULK, [b"b"])
    events = until(listener, lambda seen: len(seen) >= 4)
    for lane in Lane:
        first, second = (event for event in events if event.lane is lane)
        assert first == Connected(lane, second.peer)
        assert isinstance(second, Received)
    assert len({event.peer for event in events}) == 2


def test_messages_of_a_lane_keep_their_order(world: World) -> None:
    listener, channel = world.pair()
    sent, seen = 0, list[int]()
    while len(seen) < 500:
        while sent < 500 and channel.send(Lane.CONTROL, [sent.to_bytes(4, "big")]):
            sent += 1
        while len(seen) < sent:
            seen += [int.from_bytes(received.frames[0], "big") for received in messages(listener, 1)]
    assert seen == list(range(500))


def test_the_senders_buffer_is_free_after_the_return(world: World) -> None:
    listener, channel = world.pair()
    buffer = bytearray(b"x" * 100_000)
    assert channel.send(Lane.BULK, [b"", memoryview(buffer)])
    buffer[:] = b"y" * 100_000
    assert bytes(message(listener).frames[1]) == b"x" * 100_000


def test_received_frames_outlive_their_end(world: World) -> None:
    listener, channel = world.pair()
    assert channel.send(Lane.BULK, [b"header", b"x" * 200_000])
    received = message(listener)
    channel.close()
    listener.close()
    assert [bytes(frame) for frame in received.frames] == [b"header", b"x" * 200_000]


def test_nothing_is_taken_without_a_connection_or_delivered_later(world: World) -> None:
    first = world.listen()
    first.close()
    channel = world.connect()
    assert not channel.send(Lane.CONTROL, [b"too early"])
    listener = world.listen()
    connected(channel)
    assert channel.send(Lane.CONTROL, [b"in time"])
    assert bytes(message(listener).frames[0]) == b"in time"


def test_a_restarted_server_is_found_again(world: World) -> None:
    listener, channel = world.pair()
    assert channel.send(Lane.CONTROL, [b"a"])
    peer = message(listener).peer
    listener.close()
    until(channel, lambda events: len(events) >= 2)
    assert not channel.send(Lane.CONTROL, [b"nobody"])
    successor = world.listen()
    connected(channel)
    assert channel.send(Lane.CONTROL, [b"b"])
    again = message(successor)
    assert bytes(again.frames[0]) == b"b"
    assert not successor.send(b"\0\0\0\0\0" if peer == again.peer else peer, Lane.CONTROL, [b"nobody"])


def test_what_a_dead_server_had_not_read_does_not_reach_its_successor(world: World) -> None:
    listener, channel = world.pair()
    old = b"x" * 1_000_000
    taken = next(count for count in range(10_000) if not channel.send(Lane.BULK, [b"old", old]))
    assert taken > 0
    listener.close()
    until(channel, lambda events: sum(isinstance(event, Disconnected) for event in events) == 2)
    successor = world.listen()
    connected(channel)
    assert channel.send(Lane.BULK, [b"new"])
    assert bytes(message(successor).frames[0]) == b"new"


def test_a_closed_channel_is_noticed(world: World) -> None:
    listener, channel = world.pair()
    assert channel.send(Lane.CONTROL, [b"a"])
    peer = message(listener).peer
    channel.close()
    assert gone(listener, peer).lane is Lane.CONTROL
    assert not listener.send(peer, Lane.CONTROL, [b"nobody"])


def test_a_dropped_peer_is_cut_off_and_others_are_not(world: World) -> None:
    listener, bad = world.pair()
    good = world.connect()
    connected(good)
    assert bad.send(Lane.CONTROL, [b"bad"])
    peer = message(listener).peer
    assert good.send(Lane.CONTROL, [b"good"])
    other = message(listener).peer
    listener.drop(peer, Lane.CONTROL)
    listener.drop(b"nobody", Lane.CONTROL)
    assert not listener.send(peer, Lane.CONTROL, [b"answer"])
    gone(listener, peer)
    gone(bad)
    assert listener.send(other, Lane.CONTROL, [b"answer"])
    assert bytes(message(good).frames[0]) == b"answer"


def test_a_peer_that_never_reads_fills_its_own_queue_only(world: World) -> None:
    listener, slow = world.pair()
    other = world.connect()
    connected(other)
    assert slow.send(Lane.CONTROL, [b"slow"])
    deaf = message(listener).peer
    assert other.send(Lane.CONTROL, [b"other"])
    reader = message(listener).peer
    answer = b"x" * 100_000
    taken = next(count for count in range(10_000) if not listener.send(deaf, Lane.CONTROL, [answer]))
    assert taken > 0
    assert listener.send(reader, Lane.CONTROL, [b"served"])
    assert bytes(message(other).frames[0]) == b"served"
    assert len(messages(slow, taken)) == taken  # nothing of what was taken is lost


@pytest.mark.parametrize("count", [0, 3])
def test_a_message_has_one_or_two_frames(world: World, count: int) -> None:
    listener, channel = world.pair()
    for send in (
        lambda frames: channel.send(Lane.CONTROL, frames),
        lambda frames: listener.send(b"any", Lane.CONTROL, frames),
    ):
        with pytest.raises(ValueError, match=f"frames: {count} is not allowed"):
            send([b"x"] * count)


def test_an_address_in_use_is_refused(world: World) -> None:
    listener, channel = world.pair()
    with pytest.raises(TransportError, match="already in use"):
        world.listen()
    assert channel.send(Lane.CONTROL, [b"unharmed"])
    assert bytes(message(listener).frames[0]) == b"unharmed"


def test_a_closed_end_says_so(world: World) -> None:
    listener, channel = world.pair()
    for end in (listener, channel):
        end.close()
        end.close()
        end.wake()
        with pytest.raises(TransportError, match="closed"):
            end.poll(0)
    with pytest.raises(TransportError, match="closed"):
        channel.send(Lane.CONTROL, [b"x"])
    with pytest.raises(TransportError, match="closed"):
        listener.send(b"x", Lane.CONTROL, [b"x"])


def test_wake_ends_a_wait_from_another_thread(world: World) -> None:
    for end in world.pair():
        polls: list[object] = []

        def wait(end: Channel | Listener = end, polls: list[object] = polls) -> None:
            polls.append(end.poll(3600))

        end.wake()
        end.wake()
        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        waiting.join(30)
        assert polls == [[]]
