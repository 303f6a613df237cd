"""The one way in which a checkpoint is refused."""

from __future__ import annotations

from pathlib import Path

_SHOWN = 160
"""Characters of what was found that an error repeats: a file may hold anything."""


class CheckpointError(ValueError):
    """A checkpoint or its config cannot be used as it is.

    Reads `FILE: WHAT: found FOUND, expected EXPECTED`, where `what` names the tensor or the config's key.
    """

    def __init__(self, file: Path, what: str, *, found: object, expected: str) -> None:
        shown = str(found)
        if len(shown) > _SHOWN:
            shown = shown[:_SHOWN] + "..."
        super().__init__(f"{file}: {what}: found {shown}, expected {expected}")
        self.file = file
        self.what = what
        self.found = found
        self.expected = expected
