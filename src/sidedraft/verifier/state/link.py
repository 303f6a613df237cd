"""The session as a connection: when to say hello, when to give signs of life, when to give up."""

from __future__ import annotations

import math
from enum import StrEnum

from sidedraft.settings import VerifierSettings
from sidedraft.verifier.state.backoff import Backoff

NEVER = math.inf


class LinkState(StrEnum):
    DOWN = "down"
    """No control connection; the channel is trying."""
    WAITING = "waiting"
    """Connected; the next hello waits for its time."""
    GREETING = "greeting"
    """Hello sent."""
    UP = "up"
    """A session."""


class Link:
    """Times only; `Machine` turns them into messages and consequences."""

    def __init__(self, settings: VerifierSettings, backoff: Backoff) -> None:
        self.state = LinkState.DOWN
        self._settings = settings
        self._backoff = backoff
        self._retry_at = 0.0
        self._give_up_at = NEVER
        self._beat_at = NEVER
        self._beat_every = NEVER
        self._lease = NEVER
        self._heard_at = 0.0

    @property
    def up(self) -> bool:
        return self.state is LinkState.UP

    def connected(self) -> None:
        self.state = LinkState.WAITING
        self._give_up_at = NEVER

    def disconnected(self, now: float) -> None:
        self.failed(now)
        self.state = LinkState.DOWN

    def failed(self, now: float) -> None:
        """The session, or the attempt at one, is over; the connection may still be there."""
        if self.state is not LinkState.DOWN:
            self.state = LinkState.WAITING
        self._retry_at = now + self._backoff.next()
        self._give_up_at = NEVER

    def hello_due(self, now: float) -> bool:
        return self.state is LinkState.WAITING and now >= self._retry_at

    def greeted(self, now: float) -> None:
        """Hello went out."""
        self.state = LinkState.GREETING
        self._give_up_at = now + self._settings.handshake_timeout

    def welcomed(self, now: float, heartbeat: float, lease: float) -> None:
        """A session exists; both in seconds."""
        self.state = LinkState.UP
        self._give_up_at = NEVER
        self._beat_every = heartbeat
        self._beat_at = now + heartbeat
        self._lease = lease
        self._heard_at = now

    def heard(self, now: float) -> None:
        """Anything of this session came from the server."""
        self._heard_at = now

    def alive(self) -> None:
        """The server did its work in this session: later retries begin at the shortest wait again."""
        self._backoff.reset()

    def beat_due(self, now: float) -> bool:
        return self.up and now >= self._beat_at

    def beaten(self, now: float) -> None:
        self._beat_at = now + self._beat_every

    def silent(self, now: float) -> bool:
        """The server gave no sign of life for a whole lease, or did not answer our hello."""
        return (self.up and now - self._heard_at >= self._lease) or (
            self.state is LinkState.GREETING and now >= self._give_up_at
        )

    def next_event(self) -> float:
        """When something of the above comes due."""
        match self.state:
            case LinkState.WAITING:
                return self._retry_at
            case LinkState.GREETING:
                return self._give_up_at
            case LinkState.UP:
                return min(self._beat_at, self._heard_at + self._lease)
            case _:
                return NEVER
