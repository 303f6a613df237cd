"""Run every check of this folder, or those named, each in a process of its own; say which fell short.

A check is a script that prints its figure, the bar and the sample size, and exits non-zero when it falls
short. Timing bars live here and not in the tests: run checks on a quiet machine.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent


def main(names: list[str]) -> int:
    known = sorted(
        path.stem for path in FOLDER.glob("*.py") if path.stem != "run" and not path.stem.startswith("_")
    )
    unknown = sorted(set(names) - set(known))
    if unknown:
        print(f"no check named {', '.join(unknown)}; there are: {', '.join(known)}", file=sys.stderr)
        return 2
    failed: list[str] = []
    for name in names or known:
        print(f"== {name}", flush=True)
        started = time.monotonic()
        code = subprocess.run([sys.executable, str(FOLDER / f"{name}.py")], check=False).returncode
        verdict = "ok" if code == 0 else f"SHORT (exit {code})"
        print(f"== {name}: {verdict}, {time.monotonic() - started:.0f} s\n", flush=True)
        if code:
            failed.append(name)
    total = len(names or known)
    print(
        f"{total - len(failed)} of {total} checks hold" + (f"; short: {', '.join(failed)}" if failed else "")
    )
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
