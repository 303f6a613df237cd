"""Make tests/golden with the public reference implementations of DFlash and DSpark.

    python tools/make_golden.py [--venv DIR] [--out tests/golden]

Not part of any test run: it installs the packages below into a throw-away virtual environment and runs
tools/golden_reference.py there. Run it again only to add a case; the files are in the repository.
"""

from __future__ import annotations

import argparse
import subprocess
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

REFERENCES = ("dflash==0.1.0", "speculators==0.9.0", "hs-connectors==0.9.0")
"""Installed without their dependencies, which are far more than the formulas need."""

NEEDED = (
    "torch==2.13.0",
    "transformers==5.15.0",
    "safetensors",
    "numpy",
    "openai",
    "datasets",
    "pydantic-settings",
    "loguru",
    "typer",
    "httpx",
    "aiohttp",
)


def install(folder: Path) -> Path:
    """A virtual environment with the references; returns its interpreter. An existing one is used again."""
    python = folder / "bin" / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        for arguments in (NEEDED, ("--no-deps", *REFERENCES)):
            subprocess.run([python, "-m", "pip", "install", "--quiet", *arguments], check=True)
    return python


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--venv", type=Path, default=Path(tempfile.gettempdir()) / "sidedraft-golden-venv")
    parser.add_argument("--out", type=Path, default=ROOT / "tests" / "golden")
    options = parser.parse_args()
    python = install(options.venv)
    script = ROOT / "tools" / "golden_reference.py"
    subprocess.run([python, script, options.out, *REFERENCES], check=True)


if __name__ == "__main__":
    main()
