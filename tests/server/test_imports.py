"""Everything that runs from the first second does so without torch."""

from __future__ import annotations

import subprocess
import sys


def test_torch_is_imported_by_the_engine_thread_only() -> None:
    program = (
        "import sys, sidedraft.server.app, sidedraft.transport.zmq, sidedraft.cli.main as main\n"
        "main.build_parser()\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
