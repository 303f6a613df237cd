"""Lines and progress, in a terminal or a log file. Also a server's `Report`."""

from __future__ import annotations

import contextlib
import sys
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeElapsedColumn

_QUARTERS = 4


class ProgressConsole:
    """Lines go to stdout. Progress goes to stderr: a bar in a terminal, a line every quarter elsewhere."""

    def __init__(self, console: Console | None = None) -> None:
        """`console`: another one than stderr."""
        self._console = Console(stderr=True) if console is None else console
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._quarters: dict[str, int] = {}

    def note(self, text: str) -> None:
        self.close()
        _print(text, sys.stdout)

    def progress(self, task: str, done: int, total: int) -> None:
        if self._console.is_terminal:
            self._bar(task, done, total)
        else:
            self._line(task, done, total)

    def close(self) -> None:
        """Leave the terminal as it was: a bar that is not stopped keeps the cursor hidden."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None
            self._tasks.clear()

    def _bar(self, task: str, done: int, total: int) -> None:
        if self._bars is None:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
            )
            self._bars = Progress(*columns, console=self._console)
            self._bars.start()
        if task not in self._tasks:
            self._tasks[task] = self._bars.add_task(task, total=total)
        self._bars.update(self._tasks[task], completed=done, total=total)
        if done >= total and all(t.finished for t in self._bars.tasks):
            self.close()

    def _line(self, task: str, done: int, total: int) -> None:
        quarter = _QUARTERS if done >= total else _QUARTERS * done // total
        if quarter > self._quarters.get(task, 0):
            self._quarters[task] = quarter
            _print(f"{task}: {100 * quarter // _QUARTERS} %", self._console.file)


def _print(text: str, file: IO[str]) -> None:
    # Whoever read our output may have gone, or its disk be full; that is no reason for a server to stop.
    with contextlib.suppress(OSError):
        print(text, file=file, flush=True)
