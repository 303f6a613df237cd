"""What a ready server says of itself; the last line starts the verifier."""

from __future__ import annotations

import shlex
from pathlib import Path

from sidedraft.settings import ServerSettings

TARGET_PLACE = "TARGET_FOLDER"
"""Stands for the target where the server was started from a bundle and never saw it."""

SERVER_KEY_PLACE, CLIENT_KEY_PLACE = "SERVER.public", "CLIENT.secret"
"""Stand for the verifier's key files, which the server never sees."""


def banner(settings: ServerSettings, *, family: str, device: str, dtype: str, address: str, http: str) -> str:
    """Lines of text; the last one is a command that works as it stands (but for the places)."""
    lines = [f"ready: {family} draft on {device} ({dtype})", f"  verifiers  {address}"]
    if http:
        lines += [f"  status     sidedraft status --http {http}", f"  metrics    http://{http}/metrics"]
    lines += ["start the verifier:", verifier_command(settings, address)]
    return "\n".join(lines)


def verifier_command(settings: ServerSettings, address: str) -> str:
    """The command line that generates with this server's drafts."""
    target = TARGET_PLACE if settings.target is None else _absolute(settings.target)
    draft = settings.bundle or settings.draft or ""
    words = ["sidedraft", "generate", "--target", target, "--connect", address, "--draft", _absolute(draft)]
    if settings.secret_key is not None:
        words += ["--server-key", SERVER_KEY_PLACE, "--client-key", CLIENT_KEY_PLACE]
    return shlex.join(words)


def _absolute(folder: str) -> str:
    return str(Path(folder).resolve())
