"""How a command says that it cannot go on."""

from __future__ import annotations

import sys

WRONG_INPUT = 2
"""Exit status when the user has to change something."""


class CommandError(Exception):
    """Shown as one line, `sidedraft: error: ...`; the process exits with `status`."""

    def __init__(self, message: str, status: int = WRONG_INPUT) -> None:
        super().__init__(one_line(message))
        self.status = status


def one_line(text: object) -> str:
    """Any text or exception on one line of bounded length, as errors of libraries may have many."""
    line = " ".join(str(text).split())
    return line if len(line) <= 500 else line[:500] + "..."


def print_error(error: object) -> None:
    """The line itself, after everything that was printed before it."""
    sys.stdout.flush()
    print(f"sidedraft: error: {one_line(error)}", file=sys.stderr, flush=True)
