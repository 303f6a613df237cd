"""A missing extra is one line, not a traceback."""

from __future__ import annotations

import pytest

from sidedraft.cli.errors import CommandError
from sidedraft.cli.extras import require


def test_a_missing_library_names_its_extra() -> None:
    require("demo", "json", "demo")
    with pytest.raises(
        CommandError, match=r"`sidedraft demo` needs no_such_module: pip install 'sidedraft\[demo\]'"
    ):
        require("demo", "no_such_module", "demo")
