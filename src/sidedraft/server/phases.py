"""The life of a server as its operators see it."""

from __future__ import annotations

import threading
import time
from enum import StrEnum


class Phase(StrEnum):
    """In this order; a server never goes back."""

    LOADING = "loading"
    SMOKE = "smoke"
    CAPTURING = "capturing"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


_ORDER = {phase: place for place, phase in enumerate(Phase)}


class Lifecycle:
    """The present phase, why it was entered, and since when. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._phase = Phase.LOADING
        self._reason = ""
        self._since = time.monotonic()

    @property
    def phase(self) -> Phase:
        return self._phase

    @property
    def reason(self) -> str:
        """Why the server is draining or failed; empty before."""
        return self._reason

    @property
    def seconds(self) -> float:
        """Time spent in the present phase."""
        return time.monotonic() - self._since

    def enter(self, phase: Phase, reason: str = "") -> bool:
        """Go on to a later phase. False, and nothing changed, when the server is there or beyond already:
        a server that was told to stop while it loads does not become ready after it.
        """
        with self._lock:
            if _ORDER[phase] <= _ORDER[self._phase]:
                return False
            self._phase, self._reason, self._since = phase, reason, time.monotonic()
            return True
