"""What attention is given is exactly the accepted rows that are present, in position order, equal to the bit
to what was written: for every sequence of advance, reject, release, fork, evict, resume, rewind, full pool.

Long random lives beside a model that knows only tokens and what was sent, unwritten memory poisoned with NaN.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.engine_simulation import KINDS, random_life

SEEDS = 10
EVENTS = 600


def main() -> int:
    compared = 0
    for kind in sorted(KINDS):
        of_kind = sum(random_life(kind, 1000 + seed, EVENTS).compared for seed in range(SEEDS))
        print(f"{kind:>14}: {SEEDS} lives of {EVENTS} events, {of_kind:,} contexts as expected")
        compared += of_kind
    print(f"\n0 of {compared:,} contexts differ (bar: 0)")
    return int(compared < 1000)


if __name__ == "__main__":
    sys.exit(main())
