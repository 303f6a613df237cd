"""Where the engine's thread and the I/O thread meet: the session, its lock, and the send buffers."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

import torch

from sidedraft.device import CpuRuntime, Runtime
from sidedraft.settings import VerifierSettings
from sidedraft.transport.base import Channel
from sidedraft.verifier.buffers import Buffer, BufferPool, Memory
from sidedraft.verifier.facts import VerifierFacts
from sidedraft.verifier.state.session import Session

Clock = Callable[[], float]
"""Seconds, never going back."""

Wait = Callable[[Callable[[], bool], float], bool]
"""`wait(done, until)`: True as soon as `done()`, False at the time `until`."""

CONTROL_BUFFERS = 32
"""Control payloads that may be filled and not yet sent; the transport's own queue is shorter."""


class Shared:
    """Everything here is used under `changed`, but for `wait`, `clock` and what never changes.

    Args:
        wait: how the engine's thread waits; None is on `changed`, in real time.
        runtime: of the device that rows come from; None: they are on the host.
    """

    def __init__(
        self,
        facts: VerifierFacts,
        settings: VerifierSettings,
        clock: Clock,
        random: Random,
        wait: Wait | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        self.facts = facts
        self.runtime = CpuRuntime() if runtime is None else runtime
        """Of the device that rows come from."""
        self.clock = clock
        self.changed = threading.Condition()
        """The lock, and the signal that steps were settled, buffers came back or a session began."""
        self.session = Session(facts.hello(settings), settings, random)
        self.closed = False
        self.channel: Channel | None = None
        """Set and cleared by the I/O thread; others only wake it."""
        self.wait = self._wait if wait is None else wait
        limits = settings.limits
        self.deferred = settings.staging_segments > 0
        """False: `submit` returns when the server has taken the rows in."""
        segments = settings.staging_segments or limits.bulk_credit // limits.bulk_payload
        self._control = BufferPool(limits.control_payload, CONTROL_BUFFERS, self._memory)
        self._bulk = BufferPool(limits.bulk_payload, segments, self._memory)

    def wake(self) -> None:
        """Make the I/O thread look at once."""
        if self.channel is not None:
            self.channel.wake()

    def take_buffer(self, *, bulk: bool) -> Buffer | None:
        """A send buffer, or None when all are in use."""
        self._reclaim()
        return (self._bulk if bulk else self._control).take()

    def reserve(self, size: int) -> int:
        """Make send buffers for so many bytes of rows now; gives the bytes that there are."""
        with self.changed:
            return self._bulk.reserve(-(-size // self._bulk.size)) * self._bulk.size

    def _memory(self, size: int) -> Memory:
        return self.runtime.host_buffer(size, dtype=torch.uint8).numpy()

    def _reclaim(self) -> None:
        freed, abandoned = self.session.outbox.take_buffers()
        for buffer in freed:
            buffer.pool.give(buffer)
        for buffer in abandoned:
            buffer.pool.abandon(buffer)

    def _wait(self, done: Callable[[], bool], until: float) -> bool:
        with self.changed:
            while not done():
                left = until - self.clock()
                if left <= 0:
                    return False
                self.changed.wait(left)
        return True
