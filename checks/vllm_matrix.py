"""All ways of running vLLM, two levels at a time, with every other test of the integration, in nine minutes.

Runs the integration's tests but the full matrix. Bars: no pair of levels that meets in no row; every test
passes, with none skipped; 540 s of wall time on two cores. `make test-long` runs the full matrix.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests")]

from support.vllm_matrix import missing_pairs, pairwise  # noqa: E402 - the path comes first

BAR = 540.0


def main() -> int:
    rows = pairwise()
    missing = missing_pairs(rows)
    print(
        f"{len(rows)} rows in {len({row.way for row in rows})} engines, {len(missing)} pairs missing (bar: 0)"
    )
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        words = ["-q", "-k", "not full_matrix", "-n", "2", "--dist", "loadgroup", f"--junitxml={report}"]
        begun = time.monotonic()
        subprocess.run(
            [sys.executable, "-m", "pytest", *words, "tests/integrations/vllm"],
            cwd=ROOT,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
            check=False,
        )
        seconds = time.monotonic() - begun
        suite = ElementTree.parse(report).getroot().find("testsuite")
    if suite is None:
        print("pytest reported nothing")
        return 1
    tests, bad = int(suite.get("tests", 0)), sum(int(suite.get(one, 0)) for one in ("errors", "failures"))
    skipped = int(suite.get("skipped", 0))
    print(f"{tests} tests: {bad} failed, {skipped} skipped (bar: 0 and 0)")
    print(f"{seconds:.0f} s with two workers (bar: {BAR:.0f} s)")
    return int(bool(missing or bad or skipped) or seconds > BAR)


if __name__ == "__main__":
    sys.exit(main())
