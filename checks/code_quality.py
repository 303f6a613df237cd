"""Types, lint, layers and file sizes are clean; the tests take no longer than they may; the wheel is small.

`--no-tests` leaves out the tests, which take minutes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
WHEEL_BAR = 1_000_000
PYTEST = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", "-m"]
CLEAN = {
    "types": [BIN / "mypy", "--strict", "src/sidedraft"],
    "lint": [BIN / "ruff", "check", "."],
    "format": [BIN / "ruff", "format", "--check", "."],
    "layers": [BIN / "lint-imports"],
    "file sizes": [sys.executable, "tools/file_sizes.py"],
}
TIMED = {
    "make test-fast": (180, [*PYTEST, "not long and not slow"]),
    "make test, without vLLM's part": (480, [*PYTEST, "not long", "--ignore", "tests/integrations/vllm"]),
}
"""Bars in seconds."""


def run(command: list[str | Path]) -> tuple[bool, str]:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    lines = (done.stdout + done.stderr).strip().splitlines()
    return done.returncode == 0, lines[-1].strip("= ") if lines else ""


def main() -> int:
    short = 0
    for name, command in CLEAN.items():
        passed, last = run(list(command))
        print(f"{name:<32} {'clean' if passed else 'NOT CLEAN: ' + last}", flush=True)
        short += not passed
    with tempfile.TemporaryDirectory() as folder:
        run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, "."])
        sizes = [path.stat().st_size for path in Path(folder).glob("*.whl")]
    print(f"{'wheel':<32} {sizes[0] if sizes else 0:,} bytes (bar: {WHEEL_BAR:,})", flush=True)
    short += not sizes or sizes[0] > WHEEL_BAR
    timed = {} if "--no-tests" in sys.argv else TIMED
    for name, (bar, command) in timed.items():
        begun = time.monotonic()
        passed, last = run(list(command))
        taken = time.monotonic() - begun
        print(f"{name:<32} {taken:.0f} s (bar: {bar} s); {last}", flush=True)
        short += not passed or taken > bar
    return int(short > 0)


if __name__ == "__main__":
    sys.exit(main())
