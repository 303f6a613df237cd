"""The whole server inside the test's process."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path

from sidedraft.server.app import DraftServer, MakeListener, listen
from sidedraft.server.ending import Ending
from sidedraft.server.report import Silent
from sidedraft.settings import MIB, ServerSettings
from support.serve_process import PATIENCE, wait_for


class ServerRun:
    """`DraftServer.run` on a thread; `folder` holds `draft` and `target`, and gets the socket."""

    def __init__(self, folder: Path, make_listener: MakeListener = listen, **changes: object) -> None:
        self.address = f"ipc://{folder}/a.sock"
        given: dict[str, object] = {
            "draft": str(folder / "draft"),
            "target": str(folder / "target"),
            "bind": self.address,
            "http": "127.0.0.1:0",
            "kv_memory": 4 * MIB,
            "max_requests": 4,
            "skip_smoke_test": True,
            "lease_ms": 60_000,  # plain peers send no heartbeats
        }
        settings = ServerSettings(**(given | changes))  # type: ignore[arg-type]
        self.server = DraftServer(settings, Silent(), make_listener)
        self._ending: Future[Ending] = Future()
        threading.Thread(target=lambda: self._ending.set_result(self.server.run()), daemon=True).start()

    @property
    def ready(self) -> bool:
        return self.server.parts.board.ready()[0]

    def wait_ready(self) -> None:
        wait_for(lambda: self.ready or self._ending.done())
        assert self.ready

    def end(self) -> Ending:
        return self._ending.result(PATIENCE)
