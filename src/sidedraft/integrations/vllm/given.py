"""Settings as they were given, each with the name under which its giver knows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sidedraft.settings import SettingsError


@dataclass(slots=True)
class Given:
    """Values of several sources; one that is added later wins."""

    values: dict[str, Any] = field(default_factory=dict)
    errors: list[SettingsError] = field(default_factory=list)
    _sources: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, value: Any, source: str) -> None:
        self.values[name] = value
        self._sources[name] = source

    @property
    def is_any(self) -> bool:
        return bool(self.values or self.errors)

    def named(self, error: SettingsError) -> SettingsError:
        """The same error about what the giver wrote."""
        return SettingsError(self._sources.get(error.field, error.field), error.value, error.expected)
