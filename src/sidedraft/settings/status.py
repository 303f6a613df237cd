"""Settings of `sidedraft status`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sidedraft.settings.base import Settings
from sidedraft.settings.errors import SettingsError
from sidedraft.settings.server import HTTP_ADDRESS, HTTP_OFF, HttpAddress

Interval = Annotated[float, Meta(gt=0, le=3600, description="seconds, above 0 and at most 3600")]


class StatusSettings(Settings, frozen=True, kw_only=True):
    """Whom to ask, and how often."""

    http: HttpAddress = HTTP_ADDRESS
    """HOST:PORT of the server."""
    watch: Interval | None = None
    """Seconds between two looks; None looks once."""
    json: bool = False
    """Print what the server sends instead of a picture of it."""

    def check(self) -> None:
        if self.http == HTTP_OFF or not 0 < int(self.http.rpartition(":")[2]) <= 65535:
            raise SettingsError("http", self.http, "HOST:PORT, with a port from 1 to 65535")
