"""Settings of `sidedraft bench`."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sidedraft.settings.base import Settings
from sidedraft.settings.errors import SettingsError
from sidedraft.settings.keys import KeyFile
from sidedraft.settings.server import HttpAddress, Namespace

Folder = Annotated[str, Meta(min_length=1, description="the path of a folder")] | None
Length = Annotated[int, Meta(ge=1, le=1 << 24)]
Lengths = Annotated[tuple[Length, ...], Meta(description="counts of at least 1, with commas between them")]


class BenchSettings(Settings, frozen=True, kw_only=True):
    """Which server, and what of it."""

    connect: Annotated[str, Meta(min_length=1, description="ipc://PATH or tcp://HOST:PORT")] | None = None
    """A running server; None starts one."""
    http: HttpAddress | None = None
    """HOST:PORT of the running server's status, where it tells what it serves; None asks at the default
    address, unless there is a folder."""
    draft: Folder = None
    target: Folder = None
    bundle: Folder = None
    server_key: KeyFile | None = None
    client_key: KeyFile | None = None
    insecure_plain_text: bool = False
    namespace: Namespace = "default"
    row_formats: tuple[str, ...] = ()
    """Kinds of row formats; empty: all."""
    contexts: Lengths = ()
    batches: Lengths = ()
    depths: Lengths = ()
    rounds: Annotated[int, Meta(ge=2, le=100_000, description="a count from 2 to 100000")] | None = None
    quick: bool = False
    json: bool = False

    def check(self) -> None:
        if self.bundle is not None and (self.draft is not None or self.target is not None):
            raise SettingsError("bundle", self.bundle, "either --bundle or --draft and --target, not both")
        if self.connect is None:
            if (self.draft is None) != (self.target is None):
                missing = "draft" if self.draft is None else "target"
                raise SettingsError(missing, None, "--draft and --target together, to start a server")
            for name in ("http", "server_key", "client_key"):
                if getattr(self, name) is not None:
                    raise SettingsError(name, getattr(self, name), "nothing, without --connect")
        elif self.draft is None and self.target is not None:
            raise SettingsError("draft", None, "the draft's folder, beside --target")
