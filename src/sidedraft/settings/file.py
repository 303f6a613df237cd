"""Settings from a TOML file: a flat table of names and values."""

from __future__ import annotations

import tomllib
from collections.abc import Collection
from pathlib import Path
from typing import Any

from sidedraft.settings.errors import SettingsError


def read_file(path: Path, known: Collection[str]) -> dict[str, Any]:
    """The file's names, `-` and `_` alike, and values. Errors name the file and, where known, the line."""
    try:
        with path.open("rb") as file:
            table = tomllib.load(file)
    except OSError as error:
        raise SettingsError("config", path, f"a readable TOML file ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError("config", path, f"a TOML file ({error})") from None
    values: dict[str, Any] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in known or name in values:
            reason = "no name twice" if name in values else f"one of the settings {', '.join(known)}"
            raise SettingsError(f"config {path}", key, reason)
        values[name] = value
    return values
