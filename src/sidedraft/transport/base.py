"""What a transport is: two lanes of messages made of frames, and events about peers.

A `Channel` is the verifier's end, a `Listener` the server's. Both are owned by one thread; only `wake` may
be called from another. Nothing here blocks but `poll`, and that is bounded by its timeout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sidedraft.transport.clients import Client

Frame = bytes | bytearray | memoryview
"""One frame: anything that offers a contiguous buffer of bytes."""

PeerId = bytes
"""Names one *connection* of a peer at a listener. Control and bulk connections have different ids."""


class Lane(Enum):
    """The two connections of a session."""

    CONTROL = "control"
    BULK = "bulk"


@dataclass(frozen=True, slots=True)
class Received:
    """A whole message. `peer` is empty at a channel."""

    lane: Lane
    frames: list[memoryview]
    peer: PeerId = b""


@dataclass(frozen=True, slots=True)
class Connected:
    """The lane's connection is up (again). Nothing sent before it will arrive."""

    lane: Lane
    peer: PeerId = b""


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The lane's connection is gone; what was under way may or may not have arrived."""

    lane: Lane
    peer: PeerId = b""
    reason: str = ""


Event = Received | Connected | Disconnected


class TransportError(Exception):
    """The transport itself cannot go on (address in use, no permission, sockets closed)."""


MAX_FRAMES = 2
"""Frames of a message: a header and at most one payload."""


def check_frames(frames: Sequence[Frame]) -> None:
    """Refuse to send what no peer accepts; raises ValueError."""
    if not 1 <= len(frames) <= MAX_FRAMES:
        raise ValueError(f"frames: {len(frames)} is not allowed; expected a header and at most one payload")


class Channel(Protocol):
    """The verifier's end. Reconnects by itself, in the background, for ever."""

    def send(self, lane: Lane, frames: Sequence[Frame], *, copy: bool = True) -> bool:
        """Queue one message without blocking. False: not taken (no connection, or the queue is full)."""

    def poll(self, timeout: float) -> list[Event]:
        """Events since the last call, waiting up to `timeout` seconds for the first."""

    def wake(self) -> None:
        """Make a running `poll` return at once. The only method another thread may call."""

    def close(self) -> None: ...


class Listener(Protocol):
    """The server's end."""

    address: str
    """The address bound, with the port filled in."""

    def send(self, peer: PeerId, lane: Lane, frames: Sequence[Frame]) -> bool:
        """Queue one message to a peer without blocking. False: the peer is gone or does not read."""

    def poll(self, timeout: float) -> list[Event]: ...

    def client(self, peer: PeerId, lane: Lane) -> Client | None:
        """Who the peer proved to be by its key; None where no keys are used."""

    def wake(self) -> None: ...

    def drop(self, peer: PeerId, lane: Lane) -> None:
        """Forget a peer's connection: later messages from it are not delivered."""

    def close(self) -> None: ...
