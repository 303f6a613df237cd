"""How a server comes to its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue

from sidedraft.transport.base import TransportError

log = logging.getLogger(__name__)

STOPPED = 0
FAILED = 1
WRONG_INPUT = 2


@dataclass(frozen=True, slots=True)
class Ending:
    """Why the server ends, and the process' exit status."""

    status: int
    reason: str
    threads_ended: bool = True
    """False when a thread did not come to its end in time and only the end of the process stops it."""


class StartError(Exception):
    """The server cannot be started as it was asked to; one line for whoever asked."""


class Stopped(Exception):  # noqa: N818 - not an error
    """Raised inside a thread that was told to stop while it was starting."""


class Endings:
    """Where threads and signal handlers say that the server has to end; the first word counts.

    A `SimpleQueue` because its `put` may run inside a signal handler at any point of `get`.
    """

    def __init__(self) -> None:
        self._queue: SimpleQueue[Ending] = SimpleQueue()

    def put(self, ending: Ending) -> None:
        self._queue.put(ending)

    def wait(self) -> Ending:
        return self._queue.get()

    def guard(self, name: str, run: Callable[[], None]) -> threading.Thread:
        """A started thread whose every way out but a quiet return becomes an ending."""

        def guarded() -> None:
            try:
                run()
            except Stopped:
                pass
            except StartError as error:
                self.put(Ending(WRONG_INPUT, str(error)))
            except BaseException as error:
                if not isinstance(error, TransportError):  # which says all there is to say
                    log.error("the %s thread died", name, exc_info=True)
                self.put(Ending(FAILED, f"the {name} thread died: {type(error).__name__}: {error}"))

        thread = threading.Thread(target=guarded, name=f"sidedraft-{name}", daemon=True)
        thread.start()
        return thread
