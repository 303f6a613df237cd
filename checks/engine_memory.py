"""Memory after 10,000 random requests grows by less than 1 MB a thousand, and what is allocated for rows
stays under the plan."""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.many_requests import ManyRequests, resident_bytes

WARM_UP = 1000
REQUESTS = 10_000
BAR = 1.0
"""MB a thousand requests."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=REQUESTS, help="a multiple of 1000")
    requests = parser.parse_args().requests
    life = ManyRequests()
    life.run(WARM_UP)
    gc.collect()
    before, objects = resident_bytes(), len(gc.get_objects())
    for done in range(1000, requests + 1, 1000):
        life.run(1000)
        gc.collect()
        grown = (resident_bytes() - before) / 1e6
        print(
            f"{done:>6,} requests: {grown:+.2f} MB, {len(gc.get_objects()) - objects:+,} objects", flush=True
        )
    engine = life.client.engine
    allocated, planned = engine.allocated_bytes, engine.plan.kv_memory
    slope = grown / (requests / 1000)
    print(f"\n{slope:.3f} MB a thousand requests (bar: {BAR}; {requests:,} requests after {WARM_UP:,})")
    print(f"{allocated:,} bytes allocated for rows (bar: {planned:,} planned)")
    return int(slope >= BAR or allocated > planned)


if __name__ == "__main__":
    sys.exit(main())
