"""What may become of a message: scripted one by one, or drawn from chances by a seeded generator."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from random import Random

from sidedraft.transport.base import Frame


class Direction(Enum):
    """Which way a message goes on a lane."""

    UP = "up"
    """Verifier to server."""
    DOWN = "down"
    """Server to verifier."""


@dataclass(frozen=True, slots=True)
class Fate:
    """What becomes of one message."""

    delays: tuple[float, ...] = (0.0,)
    """One arrival an entry, so many seconds after the link's latency; none: the message is lost."""
    overtaken: bool = False
    """True: messages sent later do not wait for this one."""
    corrupt: bool = False
    """Bytes are changed, frames cut short, lengthened, taken away or added (but 1 or 2 remain)."""
    cut: bool = False
    """The connection breaks, and what is under way in both directions is lost with it."""

    @property
    def name(self) -> str:
        """The fault in a word, as `Link.counts` counts it."""
        if self.cut:
            return "cut"
        if not self.delays:
            return "drop"
        if self.corrupt:
            return "corrupt"
        if len(self.delays) > 1:
            return "duplicate"
        if self.overtaken:
            return "overtaken"
        return "delay" if self.delays[0] else "deliver"


DELIVER = Fate()
DROP = Fate(delays=())
DUPLICATE = Fate(delays=(0.0, 0.0))
CORRUPT = Fate(corrupt=True)
CUT = Fate(delays=(), cut=True)


def delayed(seconds: float) -> Fate:
    """Arrives later, and holds up what follows it."""
    return Fate(delays=(seconds,))


def overtaken(seconds: float) -> Fate:
    """Arrives later, and what follows may arrive before it."""
    return Fate(delays=(seconds,), overtaken=True)


@dataclass(frozen=True, slots=True)
class Faults:
    """Chances a message, drawn in the order of the fields; the first that comes true decides. Seconds."""

    cut: float = 0.0
    drop: float = 0.0
    duplicate: float = 0.0
    corrupt: float = 0.0
    reorder: float = 0.0
    """Chance to be overtaken for up to `reorder_by`."""
    delay: float = 0.0
    """Chance to be late, in order, by up to `delay_by`."""
    reorder_by: float = 0.1
    delay_by: float = 0.1
    latency: float = 0.0
    """Every message takes so long."""

    def draw(self, random: Random) -> Fate:
        if random.random() < self.cut:
            return CUT
        if random.random() < self.drop:
            return DROP
        if random.random() < self.duplicate:
            return Fate(delays=(0.0, random.random() * self.delay_by), overtaken=True)
        if random.random() < self.corrupt:
            return CORRUPT
        if random.random() < self.reorder:
            return overtaken(random.random() * self.reorder_by)
        if random.random() < self.delay:
            return delayed(random.random() * self.delay_by)
        return DELIVER


@dataclass(slots=True)
class Link:
    """One direction of one lane of one channel. Its faults and its script outlive reconnections."""

    faults: Faults = Faults()
    script: deque[Fate] = field(default_factory=deque)
    """Fates of the next messages; chances decide again when it is used up."""
    counts: Counter[str] = field(default_factory=Counter)
    """Messages by fate, so that a test can show that its faults took place."""

    def next_fate(self, random: Random) -> Fate:
        fate = self.script.popleft() if self.script else self.faults.draw(random)
        self.counts[fate.name] += 1
        return fate


def corrupted(frames: Sequence[Frame], random: Random) -> list[bytes]:
    """A damaged copy: one of its frames differs, is missing, or is new."""
    copies = [bytes(frame) for frame in frames]
    index = random.randrange(len(copies))
    victim = copies[index]
    match random.choice(("flip", "shorten", "lengthen", "frames")):
        case "flip" if victim:
            damaged = bytearray(victim)
            damaged[random.randrange(len(damaged))] ^= 1 << random.randrange(8)
            copies[index] = bytes(damaged)
        case "shorten" if victim:
            copies[index] = victim[: random.randrange(len(victim))]
        case "frames" if len(copies) == 2:
            del copies[index]
        case "frames":
            copies.append(random.randbytes(random.randrange(64)))
        case _:
            copies[index] = victim + random.randbytes(1 + random.randrange(64))
    return copies
