"""What a starting server tells whoever started it."""

from __future__ import annotations

from typing import Protocol


class Report(Protocol):
    """Called from the engine thread while the server starts. Must not block."""

    def note(self, text: str) -> None:
        """One or more whole lines: the memory plan, a phase, the banner."""

    def progress(self, task: str, done: int, total: int) -> None:
        """`done` of `total` units of a task; equal when it is finished."""


class Silent:
    """A report to nobody, for servers inside other programs."""

    def note(self, text: str) -> None:
        pass

    def progress(self, task: str, done: int, total: int) -> None:
        pass
