"""The transport's round trip: p50 at most raw pyzmq's p50 + 400 us + one memcpy of the payload.

At 1, 64, 256 KiB and 1 MiB, over ipc and tcp; p99 is shown.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.transport import measure, table

ROUNDS = 1000
ALLOWED = 400.0
"""Microseconds over the baseline, besides one copy."""


def main() -> int:
    rows = measure(ROUNDS)
    print(table(rows))
    short = [row for row in rows if row.added > ALLOWED + row.memcpy]
    worst = max(rows, key=lambda row: row.added - row.memcpy)
    print(
        f"\n{len(rows) - len(short)} of {len(rows)} sizes hold; the worst adds {worst.added:.0f} us "
        f"({worst.transport}, {worst.size // 1024} KiB; bar: {ALLOWED:.0f} us and {worst.memcpy:.0f} us of "
        f"memcpy; p50 of {ROUNDS} interleaved round trips of each kind)"
    )
    return int(bool(short))


if __name__ == "__main__":
    sys.exit(main())
