"""Every wrong input ends `sidedraft serve` non-zero, with one clear line, no process and no socket file."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.wrong_starts import WRONG_STARTS, faults


def main() -> int:
    bad = 0
    for start in WRONG_STARTS:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="sd-") as folder:
            found = list(faults(start, Path(folder)))
        bad += bool(found)
        print(f"{start.name:32} {time.monotonic() - began:5.1f} s  {'ok' if not found else '; '.join(found)}")
    good = len(WRONG_STARTS) - bad
    print(f"{good} of {len(WRONG_STARTS)} wrong inputs are refused cleanly (bar: all)")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
