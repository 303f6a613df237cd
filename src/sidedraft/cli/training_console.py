"""How a training run looks in a terminal or a log."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

LOG_SECONDS = 30.0
"""Outside a terminal: seconds between lines of one task."""


class TrainingConsole:
    """Progress goes to stderr, a bar a task in a terminal and lines elsewhere; the result goes to stdout."""

    def __init__(self) -> None:
        self._errors = Console(stderr=True)
        self._bars: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._said: dict[str, float] = {}

    def progress(self, task: str, done: int, total: int, note: str = "") -> None:
        if self._errors.is_terminal:
            self._bar(task, done, total, note)
        elif done >= total or time.monotonic() - self._said.get(task, float("-inf")) >= LOG_SECONDS:
            self._said[task] = time.monotonic()
            self._errors.print(f"{task}: {done} of {total} {note}".rstrip(), highlight=False)

    def close(self) -> None:
        """Leave the terminal as it was."""
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def _bar(self, task: str, done: int, total: int, note: str) -> None:
        if self._bars is None:
            self._bars = Progress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
                console=self._errors,
            )
            self._bars.start()
        if task not in self._tasks:
            self._tasks[task] = self._bars.add_task(task, total=total, note="")
        self._bars.update(self._tasks[task], completed=done, note=note)

    def summary(self, report: dict[str, Any], out: Path) -> None:
        """The measurements as a table: the draft beside the free n-gram lookup."""
        table = Table(title=f"{out}: {report['bytes'] / 1e6:.1f} MB", title_justify="left")
        for heading in ("prompts", "number", "acceptance length", "by position", "n-gram lookup"):
            table.add_column(heading)
        for name, found in report["measured"].items():
            shares = " ".join(f"{share:.2f}" for share in found["draft"]["by_position"])
            table.add_row(
                name,
                str(found["prompts"]),
                f"{found['draft']['acceptance_length']:.2f}",
                shares,
                f"{found['ngram']['acceptance_length']:.2f}",
            )
        seconds = report["seconds"]
        console = Console()
        console.print(table)
        console.print(f"collecting {seconds['collecting']:.0f} s, training {seconds['training']:.0f} s")
