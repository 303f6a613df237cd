"""The protocol can be read where neither torch nor zmq is installed."""

from __future__ import annotations

import subprocess
import sys

BLOCK = """
import sys
for name in ("torch", "zmq", "transformers", "vllm"):
    sys.modules[name] = None  # an import of it fails
import importlib, pkgutil, sidedraft.wire
for module in pkgutil.iter_modules(sidedraft.wire.__path__):
    importlib.import_module(f"sidedraft.wire.{module.name}")
"""


def test_no_module_of_the_package_needs_torch_or_zmq():
    subprocess.run([sys.executable, "-c", BLOCK], check=True, timeout=60)
