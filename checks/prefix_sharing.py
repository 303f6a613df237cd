"""Two requests sharing a prefix hold the same blocks; a request restored from the index computes no context
row again; two requests with equal tokens and different context keys share nothing. All counted.

With a real draft of the demo's size and random weights.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.engine import bench_draft

from support.engine_client import Client, make_engine, text

PREFIX = 1024


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        draft = bench_draft(Path(folder))
    client = Client(make_engine(draft, blocks=256, memory=64 << 20))
    size = client.engine.plan.block_size
    short = False

    def report(what: str, found: int, bar: int) -> None:
        nonlocal short
        short |= found != bar
        print(f"{what}: {found:,} (bar: {bar:,})")

    def counts() -> tuple[int, int]:
        stats = client.engine.stats()
        return stats.blocks_held, stats.rows_computed

    first, second = client.open(), client.open(text(PREFIX))
    for start in range(0, PREFIX, 256):
        client.step(first.advance(text(start + 256)[start:]))
    alone, computed = counts()
    client.step(second.no_rows(text(0), depth=2))
    report(f"blocks held by one request of {PREFIX:,} rows", alone, PREFIX // size)
    report("blocks held more by a second request with the same prefix", counts()[0] - alone, 0)
    first.release()
    second.release()
    [answer] = client.step(client.open(text(PREFIX), of=first).no_rows(text(0), depth=2))
    report("rows present after a restore from the index", answer.rows_present, PREFIX)
    report("rows computed for it", counts()[1] - computed, 0)

    other = client.open(text(PREFIX), context_key=b"adapter")
    [answer] = client.step(other.no_rows(text(0), depth=2))
    report("rows present for equal tokens under another context key", answer.rows_present, 0)
    again = client.open(context_key=b"adapter")
    held, computed = counts()
    for start in range(0, PREFIX, 256):
        client.step(again.advance(text(start + 256)[start:]))
    report("rows computed for equal tokens under that key", counts()[1] - computed, PREFIX)
    report("blocks held more for them", counts()[0] - held, PREFIX // size)
    return int(short)


if __name__ == "__main__":
    sys.exit(main())
