"""Environment variables: where files go. Those that set an integration are read in its own `config`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Where converted models are kept: `$XDG_CACHE_HOME/sidedraft`, by default `~/.cache/sidedraft`."""
    base = environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "sidedraft"


def runtime_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Where sockets live: `$XDG_RUNTIME_DIR/sidedraft`, else `/tmp/sidedraft-UID`.

    Short on purpose: the path of a Unix socket has room for about 100 bytes.
    """
    base = environ.get("XDG_RUNTIME_DIR", "")
    return Path(base) / "sidedraft" if base else Path(f"/tmp/sidedraft-{os.getuid()}")
