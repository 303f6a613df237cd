"""A verifier made of plain messages: what a test says, and what it hears, over any channel."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from sidedraft.transport.base import Channel, Connected, Frame, Lane, Received
from sidedraft.wire import messages as m
from sidedraft.wire.advance import Advance, Answer, Opening, Tokens
from sidedraft.wire.agreement import Agreement
from sidedraft.wire.batch import AdvanceBatch, AnswerBatch
from sidedraft.wire.codec import Codec, Decoded
from sidedraft.wire.handshake import check_welcome
from sidedraft.wire.headers import End

Kind = TypeVar("Kind")


def hello(
    shape_taps: tuple[int, ...],
    hidden: int,
    vocab: int,
    *,
    family: str,
    layout: str,
    max_depth: int,
    **changes: object,
) -> m.Hello:
    """A hello that offers f32 rows only, so that tests can write them as they are."""
    fields = {
        "software": "test 1",
        "verifier": "test",
        "target": m.TargetFacts(taps=shape_taps, hidden_size=hidden, vocab_size=vocab),
        "draft": m.DraftFacts(family=family, layout=layout, max_depth=max_depth),
        "row_formats": ("f32",),
        "max_depth": max_depth,
        "max_position": 4096,
    }
    return m.Hello(**(fields | changes))  # type: ignore[arg-type]


@dataclass
class WirePeer:
    """`pump` makes the other side do its work (in virtual time) or is None (then `expect` waits)."""

    channel: Channel
    pump: Callable[[], None] | None = None
    agreement: Agreement | None = None
    heard: list[Decoded] = field(default_factory=list)
    serial: int = 0

    def __post_init__(self) -> None:
        self.codec = Codec(End.VERIFIER)
        self.connected = False

    def raw(self, frames: Sequence[Frame], lane: Lane = Lane.CONTROL, *, timeout: float = 20.0) -> None:
        """Send frames as they are, waiting for the connection."""
        until = time.monotonic() + timeout
        while not self.channel.send(lane, frames):
            self._poll(0.05)
            if time.monotonic() > until:
                raise TimeoutError(f"nothing takes messages on {lane}")

    def say(self, message: Decoded, lane: Lane = Lane.CONTROL) -> None:
        self.raw(self.codec.encode(message, bulk=lane is Lane.BULK), lane)

    def expect(self, kind: type[Kind], *, timeout: float = 20.0) -> Kind:
        """The first message of this kind that is, or comes; the others stay in `heard`."""
        until = time.monotonic() + timeout
        while True:
            self._poll(0.05)
            for message in self.heard:
                if isinstance(message, kind):
                    self.heard.remove(message)
                    return message
            if self.pump is not None or time.monotonic() > until:
                raise AssertionError(f"no {kind.__name__}; heard {self.heard}")

    def quiet(self) -> bool:
        """True when nothing was heard that a test has not taken."""
        self._poll(0.0)
        return not self.heard

    def greet(self, greeting: m.Hello) -> Agreement:
        """Say hello, expect a welcome."""
        self.codec = Codec(End.VERIFIER)
        self.say(greeting)
        self.agreement = check_welcome(greeting, self.expect(m.Welcome))
        self.codec = Codec(End.VERIFIER, self.agreement)
        return self.agreement

    @property
    def ids(self) -> dict[str, int]:
        assert self.agreement is not None
        return {"session": self.agreement.session, "epoch": self.agreement.epoch}

    def batch(self, *advances: Advance, budget_us: int = 0) -> AdvanceBatch:
        self.serial += 1
        return AdvanceBatch(**self.ids, serial=self.serial, budget_us=budget_us, advances=list(advances))

    def advance(self, *advances: Advance, lane: Lane = Lane.CONTROL, budget_us: int = 0) -> None:
        self.say(self.batch(*advances, budget_us=budget_us), lane)

    def answers(self, count: int, *, timeout: float = 20.0) -> list[Answer]:
        """The next `count` answers, over as many messages as they take."""
        found: list[Answer] = []
        while len(found) < count:
            found += self.expect(AnswerBatch, timeout=timeout).answers
        assert len(found) == count, found
        return found

    def _poll(self, timeout: float) -> None:
        if self.pump is not None:
            self.pump()
        for event in self.channel.poll(timeout):
            if isinstance(event, Received):
                self.heard.append(self.codec.decode(event.frames))
            elif isinstance(event, Connected):
                self.connected = True


def make_advance(
    request: int,
    number: int,
    first: int,
    tokens: Tokens,
    *,
    width: int,
    depth: int = 0,
    generation: int = 0,
    anchor: int = 7,
    rows: bool = True,
    prefix: Tokens | None = None,
    private: bool = False,
    seed: int = 0,
) -> Advance:
    """An advance with float32 rows of noise for all its tokens; number 0 opens."""
    values = np.random.default_rng(seed).standard_normal((len(tokens), width), dtype=np.float32)
    opening = None
    if number == 0:
        opening = Opening(prefix=np.zeros(0, np.int32) if prefix is None else prefix, private=private)
    return Advance(
        request,
        generation,
        number,
        first,
        tokens.astype(np.int32),
        anchor,
        depth,
        first,
        values.view(np.uint8) if rows and len(tokens) else None,
        opening,
    )
