"""Settings that name files of keys."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sidedraft.settings.errors import SettingsError

KeyFile = Annotated[str, Meta(min_length=1, description="the path of a file made by `sidedraft keys`")]


def check_keys(server_key: str | None, client_key: str | None, *, insecure_plain_text: bool) -> None:
    """A verifier's: both or neither, and not beside plain text. Raises SettingsError."""
    if (server_key is None) != (client_key is None):
        field = "server_key" if server_key is None else "client_key"
        raise SettingsError(field, None, "a file: server_key and client_key go together")
    if server_key is not None and insecure_plain_text:
        raise SettingsError("insecure_plain_text", True, "either keys or plain text, not both")
