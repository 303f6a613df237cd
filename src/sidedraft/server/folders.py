"""A first look at the folders, before anything heavy is imported: most wrong paths are found at once."""

from __future__ import annotations

from pathlib import Path

from sidedraft.server.ending import StartError
from sidedraft.settings import ServerSettings


def check_folders(settings: ServerSettings) -> None:
    """Raises `StartError` for a folder that is not there, cannot be read or has no config.json."""
    for name in ("draft", "target", "bundle"):
        value = getattr(settings, name)
        if value is not None:
            _check(name, Path(value))


def _check(name: str, folder: Path) -> None:
    try:
        if not folder.is_dir():
            found = "a file" if folder.exists() else "nothing there"
            raise StartError(f"{name}: {folder}: found {found}, expected a folder")
        with (folder / "config.json").open("rb"):
            pass
    except OSError as error:
        raise StartError(f"{name}: {folder / 'config.json'}: {error.strerror}") from None
