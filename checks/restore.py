"""Taking a known prefix of 1k, 4k or 16k tokens over again: 0 rows computed, rows equal to the bit, logits of
the proposal that follows equal to the bit, and at 16k at most 1/50 of the time that ingesting it again takes.

The engine with a real draft of the demo's size and random weights, on one thread and by that thread's clock,
hashing and answers included, the proposal not; medians of interleaved pairs. The rows of the other member are
ingested under a context key of its own, which shares nothing.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.engine import bench_draft

from sidedraft.drafts.base import Draft
from sidedraft.engine import Engine, plan_memory
from support.engine_client import Client, Request, random_aux, text
from support.recording_draft import RecordingDraft

PREFIXES = (1024, 4096, 16_320)
"""The last one is the most that leaves room for a query block in the draft's 16,384 positions."""
CHUNK = 512
PAIRS = 5
BAR = 1 / 50


class Prefix:
    """One prefix, known to the engine, in a client that can come back to it."""

    def __init__(self, draft: Draft, length: int) -> None:
        plan = plan_memory(
            draft.shape, draft.dtype, kv_memory=1 << 30, max_requests=8, block_size=16, max_position=16_384
        )
        self.recording = RecordingDraft(draft)
        self.client = Client(Engine(self.recording, replace(plan, blocks=4 * length // 16 + 64)))
        self.tokens = text(length)
        self.aux = random_aux(self.client.rng, length, self.client.width)

    def ingest(self, context_key: bytes) -> Request:
        """Every row, in chunks."""
        request = self.client.open(context_key=context_key)
        for low in range(0, len(self.tokens), CHUNK):
            part = slice(low, low + CHUNK)
            self.client.step(request.advance(self.tokens[part], aux=self.aux[part]))
        return request

    def restore(self) -> Request:
        """The prefix, by its tokens alone."""
        request = self.client.open(self.tokens)
        self.client.step(request.no_rows(self.tokens[:0]))
        return request

    def logits(self, request: Request) -> torch.Tensor:
        """Of a proposal that sees the whole prefix."""
        [answer] = self.client.step(request.no_rows(self.tokens[:0], depth=4))
        assert answer.rows_present == len(self.tokens)
        return self.recording.logits_at(len(self.tokens)).clone()

    def rows(self, request: Request) -> torch.Tensor:
        """What attention is given, [length, ...]."""
        found = self.client.engine._requests.find(1, request.id)
        assert found is not None
        return self.client.engine._storage.read(found.table.slots[: len(self.tokens)])


def timed(call: Callable[..., Request], *given: bytes) -> tuple[float, Request]:
    """Milliseconds of this thread, and what the call gives."""
    started = time.thread_time()
    request = call(*given)
    return (time.thread_time() - started) * 1e3, request


def main() -> int:
    torch.set_num_threads(1)
    short = False
    print(" prefix  ingest ms  restore ms    ratio  rows computed  rows differing  logits")
    with tempfile.TemporaryDirectory() as folder:
        draft = bench_draft(Path(folder))
        for length in PREFIXES:
            prefix = Prefix(draft, length)
            original = prefix.ingest(b"")
            rows, logits = prefix.rows(original), prefix.logits(original)
            original.release()
            ingests, restores, computed, differing, equal = [], [], 0, 0, True
            for pair in range(PAIRS):
                spent, again = timed(prefix.ingest, str(pair).encode())
                ingests.append(spent)
                again.release()
                before = prefix.recording.rows_computed
                spent, restored = timed(prefix.restore)
                restores.append(spent)
                computed += prefix.recording.rows_computed - before
                differing += int((prefix.rows(restored) != rows).any(1).sum())
                equal &= prefix.logits(restored).equal(logits)
                restored.release()
            ratio = statistics.median(b / a for a, b in zip(ingests, restores, strict=True))
            slow, quick = statistics.median(ingests), statistics.median(restores)
            same = "equal" if equal else "not equal"
            times = f"{slow:>10.1f} {quick:>11.2f} {ratio:>8.4f}"
            print(f"{length:>7,} {times} {computed:>14} {differing:>15}  {same}")
            short |= computed > 0 or differing > 0 or not equal
            short |= length == PREFIXES[-1] and ratio > BAR
    print(f"bars: {BAR:.2f} at {PREFIXES[-1]:,}, 0, 0, equal to the bit; {PAIRS} pairs each")
    return int(short)


if __name__ == "__main__":
    sys.exit(main())
