"""The demo: every output identical (tie rule), mean speed-up above 1 on its domain, within 4 minutes.

The time starts with the target's wheel on disk: it is fetched here, unmeasured, where no cache has it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 240.0


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "demo.json"
        started = time.monotonic()
        command = [sys.executable, "-m", "sidedraft.cli.main", "demo", "--assets", str(ROOT / "demo")]
        code = subprocess.run([*command, "--json", str(result)], check=False).returncode
        seconds = time.monotonic() - started
        if not result.is_file():
            print(f"the demo gave no result (exit {code})")
            return 1
        found = json.loads(result.read_text())
    domain = [kind for kind in found["kinds"] if kind["domain"]]
    prompts = sum(kind["prompts"] for kind in found["kinds"])
    identical = sum(kind["identical"] for kind in found["kinds"])
    ties = sum(kind["ties"] for kind in found["kinds"])
    speed_up = found["mean_speed_up_of_domain"]
    print(f"outputs: {identical} of {prompts} identical, {ties} ties (bar: all but ties)")
    count = sum(kind["prompts"] for kind in domain)
    print(f"mean speed-up: {speed_up:.2f} over {count} prompts of the domain (bar: above 1)")
    print(f"time: {seconds:.0f} s (bar: {SECONDS:.0f} s)")
    return int(not (code == 0 and found["ok"] and speed_up > 1 and seconds <= SECONDS))


if __name__ == "__main__":
    sys.exit(main())
