"""Engine time a proposal over a bare forward on preallocated dense K/V of the same draft: at most 1.3 at
batch 1 up to 8k context, at most 1.6 at batch 8 and 8k."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.engine import CONTEXTS, Row, measure, table

from sidedraft.settings import EngineSettings

PAIRS = 31
BARS = {1: 1.3, 8: 1.6}
"""By batch size; batch 8 at the longest context only."""


def main() -> int:
    block = (EngineSettings().block_size,)
    rows = measure((1,), CONTEXTS, block, PAIRS) + measure((8,), CONTEXTS[-1:], block, PAIRS)
    print(table(rows))
    print()
    for batch, bar in BARS.items():
        worst: Row = max((row for row in rows if row.batch == batch), key=lambda row: row.ratio)
        print(
            f"batch {batch}: {worst.ratio:.2f} at {worst.context} (bar: {bar}; "
            f"the worse of both kinds' medians, {PAIRS} interleaved pairs each)"
        )
    return int(any(row.ratio > BARS[row.batch] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
