"""Commands whose libraries are extras say so, in one line."""

from __future__ import annotations

from importlib.util import find_spec

from sidedraft.cli.errors import CommandError


def require(command: str, module: str, extra: str) -> None:
    """Raises CommandError naming the extra when `module` is not installed."""
    if find_spec(module) is None:
        raise CommandError(f"`sidedraft {command}` needs {module}: pip install 'sidedraft[{extra}]'")
