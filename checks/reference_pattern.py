"""Overhead of a proposal beside the transport pattern of the fork that this project generalises.

Batch 8, depth 7: at most half of the baseline's with rows of 5 x 4096, not more than it with rows of the
demo's width; the median of the pairs' ratios, over ipc and over loopback tcp.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.reference_pattern import BATCH, DEPTH, WIDTHS, measure, stages, table

PAIRS = 300
BARS = {"8B": 0.5, "demo": 1.0}
"""By the names of `WIDTHS`."""


def main() -> int:
    rows = measure(PAIRS)
    print(table(rows))
    print("\nwhere the overhead of ours goes:\n\n" + stages(rows) + "\n")
    short = [row for row in rows if row.ratio > BARS[row.name]]
    for row in rows:
        print(
            f"5 x {WIDTHS[row.name]} over {row.transport}: {row.ratio:.2f} of the baseline's overhead (bar: "
            f"{BARS[row.name]}; batch {BATCH}, depth {DEPTH}, median of {PAIRS} interleaved pairs)"
        )
    return int(bool(short))


if __name__ == "__main__":
    sys.exit(main())
