"""The fake network: what it does by itself, and each fault."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidedraft.transport.base import (
    Channel,
    Connected,
    Disconnected,
    Event,
    Lane,
    Listener,
    Received,
    TransportError,
)
from sidedraft.transport.fake import (
    CORRUPT,
    CUT,
    DROP,
    DUPLICATE,
    Direction,
    FakeChannel,
    FakeListener,
    FakeNetwork,
    Faults,
    VirtualClock,
    delayed,
    overtaken,
)

UP, DOWN = Direction.UP, Direction.DOWN


def texts(events: Sequence[Event]) -> list[bytes]:
    return [b"|".join(bytes(f) for f in event.frames) for event in events if isinstance(event, Received)]


class Pair:
    """A connected channel and listener."""

    def __init__(self, **options: object) -> None:
        self.clock = VirtualClock()
        self.network = FakeNetwork(self.clock, **options)  # type: ignore[arg-type]
        self.listener: FakeListener = self.network.listen()
        self.channel: FakeChannel = self.network.connect()
        self.clock.advance_to(self.network.next_due() or 0.0)
        assert self.channel.poll(0) == [Connected(Lane.CONTROL), Connected(Lane.BULK)]

    def send(self, *messages: bytes) -> None:
        for message in messages:
            assert self.channel.send(Lane.CONTROL, [message])

    def script(self, *fates: object, direction: Direction = UP) -> None:
        self.channel.links[Lane.CONTROL, direction].script.extend(fates)  # type: ignore[arg-type]


def test_ends_satisfy_the_contract() -> None:
    pair = Pair()
    channel: Channel = pair.channel
    listener: Listener = pair.listener
    assert channel.poll(0) == []
    assert listener.poll(0) == []


def test_a_message_and_its_answer_arrive_on_their_lanes() -> None:
    pair = Pair()
    assert pair.channel.send(Lane.BULK, [b"header", b"payload"])
    connected, received = pair.listener.poll(0)
    assert isinstance(received, Received)
    assert connected == Connected(Lane.BULK, received.peer)
    assert texts([received]) == [b"header|payload"]
    assert pair.listener.send(received.peer, Lane.BULK, [b"answer"])
    (answer,) = pair.channel.poll(0)
    assert isinstance(answer, Received)
    assert (answer.lane, answer.peer, texts([answer])) == (Lane.BULK, b"", [b"answer"])


def test_the_senders_buffer_may_be_reused_at_once() -> None:
    pair = Pair()
    buffer = bytearray(b"first")
    assert pair.channel.send(Lane.CONTROL, [buffer])
    buffer[:] = b"other"
    assert texts(pair.listener.poll(0)) == [b"first"]


@pytest.mark.parametrize("count", [0, 3])
def test_messages_of_no_frames_or_too_many_are_refused(count: int) -> None:
    pair = Pair()
    with pytest.raises(ValueError, match=f"frames: {count}"):
        pair.channel.send(Lane.CONTROL, [b"x"] * count)


def test_latency_moves_with_the_clock_only() -> None:
    pair = Pair(faults=Faults(latency=0.25))
    pair.send(b"a")
    pair.clock.advance(0.2)
    assert pair.listener.poll(10) == []
    assert pair.network.next_due() == 0.25
    pair.clock.advance_to(0.25)
    assert texts(pair.listener.poll(0)) == [b"a"]


def test_a_dropped_message_is_lost_and_counted() -> None:
    pair = Pair()
    pair.script(DROP)
    pair.send(b"a", b"b")
    assert texts(pair.listener.poll(0)) == [b"b"]
    assert pair.channel.links[Lane.CONTROL, UP].counts == {"drop": 1, "deliver": 1}


def test_a_delayed_message_holds_up_the_next() -> None:
    pair = Pair()
    pair.script(delayed(1.0))
    pair.send(b"a", b"b")
    assert texts(pair.listener.poll(0)) == []
    pair.clock.advance(1.0)
    assert texts(pair.listener.poll(0)) == [b"a", b"b"]


def test_an_overtaken_message_arrives_after_the_next() -> None:
    pair = Pair()
    pair.script(overtaken(1.0))
    pair.send(b"a", b"b")
    assert texts(pair.listener.poll(0)) == [b"b"]
    pair.clock.advance(1.0)
    assert texts(pair.listener.poll(0)) == [b"a"]


def test_a_duplicated_message_arrives_twice() -> None:
    pair = Pair()
    pair.script(DUPLICATE)
    pair.send(b"a")
    assert texts(pair.listener.poll(0)) == [b"a", b"a"]


@given(seed=st.integers(0, 2**32), frames=st.lists(st.binary(max_size=40), min_size=1, max_size=2))
@settings(max_examples=60, deadline=None)
def test_a_corrupted_message_differs_and_keeps_to_one_or_two_frames(seed: int, frames: list[bytes]) -> None:
    pair = Pair(seed=seed)
    pair.script(CORRUPT)
    assert pair.channel.send(Lane.CONTROL, frames)
    events = [event for event in pair.listener.poll(0) if isinstance(event, Received)]
    assert len(events) == 1
    assert 1 <= len(events[0].frames) <= 2
    assert [bytes(frame) for frame in events[0].frames] != frames


def test_a_cut_loses_what_is_under_way_and_reconnects_with_a_new_peer() -> None:
    pair = Pair(faults=Faults(latency=0.1), reconnect_delay=0.5)
    pair.send(b"known")
    pair.clock.advance(0.1)
    first = pair.listener.poll(0)[0]
    pair.send(b"lost")
    pair.script(CUT)
    pair.send(b"gone")
    assert pair.channel.poll(0) == [Disconnected(Lane.CONTROL, reason="connection lost")]
    assert not pair.channel.send(Lane.CONTROL, [b"refused"])
    assert pair.channel.send(Lane.BULK, [b"the other lane lives"])
    pair.clock.advance(0.5)
    assert pair.channel.poll(0) == [Connected(Lane.CONTROL)]
    pair.send(b"again")
    pair.clock.advance(0.1)
    events = pair.listener.poll(0)
    assert Disconnected(Lane.CONTROL, first.peer, "connection lost") in events
    assert texts(events) == [b"the other lane lives", b"again"]
    assert len({event.peer for event in events if isinstance(event, Connected)} | {first.peer}) == 3


def test_a_killed_server_is_noticed_and_its_successor_is_found() -> None:
    pair = Pair()
    pair.send(b"unread")
    pair.network.kill(pair.listener)
    assert pair.channel.poll(0) == [
        Disconnected(Lane.CONTROL, reason="the other end is gone"),
        Disconnected(Lane.BULK, reason="the other end is gone"),
    ]
    assert not pair.channel.send(Lane.CONTROL, [b"refused"])
    with pytest.raises(TransportError, match="closed"):
        pair.listener.poll(0)
    successor = pair.network.listen()
    assert pair.channel.poll(0) == [Connected(Lane.CONTROL), Connected(Lane.BULK)]
    assert successor.poll(0) == []


def test_a_killed_verifier_is_noticed() -> None:
    pair = Pair()
    pair.send(b"a")
    peer = pair.listener.poll(0)[0].peer
    pair.network.kill(pair.channel)
    assert pair.listener.poll(0) == [Disconnected(Lane.CONTROL, peer, "the other end is gone")]
    assert not pair.listener.send(peer, Lane.CONTROL, [b"answer"])


def test_a_dropped_peer_is_silenced_and_may_come_back_as_another() -> None:
    pair = Pair()
    pair.send(b"a")
    peer = pair.listener.poll(0)[0].peer
    pair.send(b"unread")
    pair.listener.drop(peer, Lane.CONTROL)
    events = pair.listener.poll(0)
    assert events == [Disconnected(Lane.CONTROL, peer, "dropped by the server")]
    assert not pair.listener.send(peer, Lane.CONTROL, [b"answer"])
    assert [type(event) for event in pair.channel.poll(0)] == [Disconnected, Connected]
    pair.send(b"back")
    connected, received = pair.listener.poll(0)
    assert connected.peer != peer
    assert texts([received]) == [b"back"]


def test_a_peer_that_does_not_read_fills_its_queue_only() -> None:
    pair = Pair(queue_limit=3)
    other = pair.network.connect()
    pair.send(b"a")
    assert other.send(Lane.CONTROL, [b"b"])
    slow, fast = (event.peer for event in pair.listener.poll(0) if isinstance(event, Received))
    assert [pair.listener.send(slow, Lane.CONTROL, [b"x"]) for _ in range(4)] == [True, True, True, False]
    assert pair.listener.send(fast, Lane.CONTROL, [b"x"])
    assert len(texts(pair.channel.poll(0))) == 3
    assert pair.listener.send(slow, Lane.CONTROL, [b"x"])


def test_an_address_has_one_listener() -> None:
    pair = Pair()
    with pytest.raises(TransportError, match="already in use"):
        pair.network.listen()
    pair.listener.close()
    pair.network.listen()


@given(seed=st.integers(0, 2**32))
@settings(max_examples=10, deadline=None)
def test_the_same_seed_gives_the_same_events(seed: int) -> None:
    def run() -> list[Event]:
        faults = Faults(cut=0.05, drop=0.1, duplicate=0.1, corrupt=0.1, reorder=0.2, delay=0.2, latency=0.01)
        pair = Pair(seed=seed)
        pair.network.set_faults(faults)
        events: list[Event] = []
        for step in range(60):
            pair.channel.send(Lane.CONTROL, [step.to_bytes(4, "big"), b"payload"])
            pair.clock.advance(0.02)
            events += pair.listener.poll(0) + pair.channel.poll(0)
        return events

    assert run() == run()
