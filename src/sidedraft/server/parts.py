"""What a server's threads share."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from sidedraft.server.counters import IoCounters
from sidedraft.server.ending import Endings
from sidedraft.server.inbox import Inbox
from sidedraft.server.phases import Lifecycle
from sidedraft.server.report import Report
from sidedraft.server.status import StatusBoard
from sidedraft.settings import ServerSettings
from sidedraft.wire.handshake import random_id


@dataclass(slots=True)
class Parts:
    """Made before any thread is started."""

    settings: ServerSettings
    report: Report
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    io_counters: IoCounters = field(default_factory=IoCounters)
    inbox: Inbox = field(default_factory=Inbox)
    endings: Endings = field(default_factory=Endings)
    stop_engine: threading.Event = field(default_factory=threading.Event)
    stop_io: threading.Event = field(default_factory=threading.Event)
    epoch: int = field(default_factory=random_id)
    """Of this process: verifiers see by it that a server's memory is gone."""
    board: StatusBoard = field(init=False)

    def __post_init__(self) -> None:
        self.board = StatusBoard(self.lifecycle, self.io_counters)
