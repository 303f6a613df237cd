"""A network in one process and in virtual time, with every fault a test can wish for."""

from sidedraft.transport.fake.clock import VirtualClock
from sidedraft.transport.fake.ends import FakeChannel, FakeListener
from sidedraft.transport.fake.faults import (
    CORRUPT,
    CUT,
    DELIVER,
    DROP,
    DUPLICATE,
    Direction,
    Fate,
    Faults,
    Link,
    delayed,
    overtaken,
)
from sidedraft.transport.fake.network import FakeNetwork

__all__ = [
    "CORRUPT",
    "CUT",
    "DELIVER",
    "DROP",
    "DUPLICATE",
    "Direction",
    "FakeChannel",
    "FakeListener",
    "FakeNetwork",
    "Fate",
    "Faults",
    "Link",
    "VirtualClock",
    "delayed",
    "overtaken",
]
