"""Keys of a config.json, read one by one with their types checked.

null counts as absent: libraries write it for settings that were never made.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn, TypeVar

from sidedraft.drafts.errors import CheckpointError

MAX_CONFIG_BYTES = 16 << 20
"""A config.json is a few kB; a larger file is something else."""

D = TypeVar("D")


class Fields:
    """A JSON object of a config file. Errors name the file and the key's dotted path."""

    def __init__(self, values: Mapping[str, object], file: Path, prefix: str = "") -> None:
        self.file = file
        self._values = {key: value for key, value in values.items() if value is not None}
        self._paths = {key: prefix + key for key in self._values}
        self._prefix = prefix

    def over(self, other: Fields) -> Fields:
        """A view in which our keys come first and the other's fill the gaps."""
        both = Fields({}, self.file, other._prefix)
        both._values = other._values | self._values
        both._paths = other._paths | self._paths
        return both

    def has(self, key: str) -> bool:
        return key in self._values

    def names(self) -> tuple[str, ...]:
        """The keys that are there."""
        return tuple(self._values)

    def section(self, key: str) -> Fields:
        """A nested object; empty when absent."""
        value = self._values.get(key, {})
        if not isinstance(value, Mapping):
            self.fail(key, "an object")
        return Fields(value, self.file, self._path(key) + ".")

    def sections(self, key: str) -> list[Fields]:
        """A list of nested objects; empty when absent."""
        value = self._values.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
            self.fail(key, "a list of objects")
        return [Fields(item, self.file, f"{self._path(key)}[{i}].") for i, item in enumerate(value)]

    def integer(self, key: str, *, low: int = 0) -> int:
        """A required integer of at least `low`."""
        value = self.integer_or(key, None, low=low)
        if value is None:
            self.fail(key, f"an integer >= {low}")
        return value

    def integer_or(self, key: str, default: D, *, low: int = 0) -> int | D:
        if key not in self._values:
            return default
        value = self._values[key]
        if not isinstance(value, int) or isinstance(value, bool) or value < low:
            self.fail(key, f"an integer >= {low}")
        return value

    def number_or(self, key: str, default: D) -> float | D:
        """A finite number."""
        if key not in self._values:
            return default
        value = self._values[key]
        if (
            not isinstance(value, (int, float))
            or isinstance(value, bool)
            or abs(value) > 1e30
            or value != value
        ):
            self.fail(key, "a finite number")
        return float(value)

    def positive_or(self, key: str, default: D) -> float | D:
        """A finite number above zero."""
        value = self.number_or(key, default)
        if isinstance(value, float) and value <= 0:
            self.fail(key, "a number above 0")
        return value

    def flag_or(self, key: str, default: D) -> bool | D:
        if key not in self._values:
            return default
        value = self._values[key]
        if not isinstance(value, bool):
            self.fail(key, "true or false")
        return value

    def text_or(self, key: str, default: D) -> str | D:
        if key not in self._values:
            return default
        value = self._values[key]
        if not isinstance(value, str):
            self.fail(key, "a string")
        return value

    def texts(self, key: str) -> tuple[str, ...] | None:
        """A list of strings; None when absent."""
        if key not in self._values:
            return None
        value = self._values[key]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            self.fail(key, "a list of strings")
        return tuple(value)

    def integers(self, key: str) -> tuple[int, ...] | None:
        """A list of integers >= 0; None when absent or empty."""
        value = self._values.get(key) or None
        if value is None:
            return None
        if not isinstance(value, list) or not all(type(item) is int and item >= 0 for item in value):
            self.fail(key, "a list of integers >= 0")
        return tuple(value)

    def fail(self, key: str, expected: str) -> NoReturn:
        """Refuse the key's value (or its absence)."""
        found = repr(self._values[key]) if key in self._values else "nothing"
        raise CheckpointError(self.file, self._path(key), found=found, expected=expected)

    def _path(self, key: str) -> str:
        return self._paths.get(key, self._prefix + key)


def read_json(file: Path) -> Fields:
    """A file holding one JSON object."""
    try:
        size = file.stat().st_size
        if not file.is_file() or size > MAX_CONFIG_BYTES:
            raise CheckpointError(
                file, "file", found=f"{size} bytes", expected=f"a file of at most {MAX_CONFIG_BYTES} bytes"
            )
        value = json.loads(file.read_bytes())
    except FileNotFoundError:
        raise CheckpointError(file, "file", found="nothing", expected="a JSON file") from None
    except OSError as error:
        raise CheckpointError(file, "file", found=error.strerror, expected="a readable file") from None
    except (ValueError, RecursionError) as error:
        raise CheckpointError(file, "content", found=f"no JSON ({error})", expected="a JSON object") from None
    if not isinstance(value, dict):
        raise CheckpointError(file, "content", found=type(value).__name__, expected="a JSON object")
    return Fields(value, file)
