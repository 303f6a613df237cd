"""What the log should hear of: one line a rung, rate-limited by whoever writes it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum

KEPT = 64
"""Lines that wait to be written; older ones give way."""


class Rung(StrEnum):
    """Kinds of lines, each with a rate limit of its own."""

    SESSION = "session"
    HANDSHAKE = "handshake"
    BREAKER = "breaker"
    LATE = "late"
    LOST = "lost"
    REFUSED = "refused"
    REFUSED_SEND = "refused_send"
    BAD_REPLY = "bad_reply"
    BAD_MESSAGE = "bad_message"
    STAGING = "staging"
    CRASH = "crash"


@dataclass(frozen=True, slots=True)
class Item:
    rung: Rung
    text: str


class News:
    """Collects lines under the lock, so that nobody writes a log while holding it."""

    def __init__(self) -> None:
        self._items: deque[Item] = deque(maxlen=KEPT)

    def add(self, rung: Rung, text: str) -> None:
        self._items.append(Item(rung, text))

    def take(self) -> list[Item]:
        """Everything since the last call."""
        items = list(self._items)
        self._items.clear()
        return items
