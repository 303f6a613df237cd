"""The thread that owns the channel. It ends on `close` only: whatever else happens costs one session."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from random import Random

from sidedraft.settings import VerifierSettings
from sidedraft.transport.base import Channel, TransportError
from sidedraft.verifier.pumping import Pump
from sidedraft.verifier.reporting import Reporter
from sidedraft.verifier.shared import Shared
from sidedraft.verifier.state.backoff import Backoff

_log = logging.getLogger("sidedraft.verifier")

LAST_WORDS = 0.02
"""Seconds that a goodbye gets to leave before the channel closes."""


class IoThread:
    """Opens a channel, pumps it, and opens another when it fails."""

    def __init__(
        self,
        shared: Shared,
        open_channel: Callable[[], Channel],
        settings: VerifierSettings,
        random: Random,
        address: str,
    ) -> None:
        self._shared = shared
        self._open_channel = open_channel
        self._backoff = Backoff(settings.retry_first, settings.retry_cap, random)
        self._reporter = Reporter(address)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sidedraft-verifier-io", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout: float) -> bool:
        """True when it has ended within `timeout` seconds."""
        self._stopping.set()
        with self._shared.changed:
            self._shared.wake()
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._serve()
            except Exception as error:
                self._failed(error)
                self._stopping.wait(self._backoff.next())
        self._close_session()  # when no channel was open

    def _serve(self) -> None:
        """One channel's life: until `stop`, or until it raises."""
        shared = self._shared
        channel = self._open_channel()
        try:
            with shared.changed:
                shared.channel = channel
            pump = Pump(shared, channel, self._reporter)
            while not self._stopping.is_set():
                pump.turn(pump.timeout())
            self._close_session()
            pump.flush()
            channel.poll(LAST_WORDS)
        finally:
            with shared.changed:
                shared.channel = None
            channel.close()

    def _close_session(self) -> None:
        shared = self._shared
        with shared.changed:
            if not shared.closed:
                shared.closed = True
                shared.session.close(shared.clock())
                shared.changed.notify_all()

    def _failed(self, error: Exception) -> None:
        """The breaker opens, everybody goes on without drafts, and a new channel is opened."""
        shared = self._shared
        with shared.changed:
            if shared.session.link.up:
                self._backoff.reset()
            shared.session.crashed(shared.clock(), f"{type(error).__name__}: {error}")
            news = shared.session.news.take()
            shared.changed.notify_all()
        if not isinstance(error, TransportError):
            _log.debug("the verifier's I/O failed", exc_info=error)
        self._reporter.report(shared.clock(), news)
