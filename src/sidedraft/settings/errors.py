"""The one way in which a setting is refused."""

from __future__ import annotations

from pathlib import Path

_SHOWN = 80
"""Characters of a bad value that an error repeats."""


class SettingsError(ValueError):
    """A setting has a value it cannot have."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        if isinstance(value, Path):  # told whole, however long: it says where to look
            shown = repr(str(value))
        else:
            shown = repr(value)
            if len(shown) > _SHOWN:
                shown = shown[:_SHOWN] + "..."
        super().__init__(f"{field}: {shown} is not allowed; expected {expected}")
        self.field = field
        self.value = value
        self.expected = expected
