"""Engine time a proposal beside a bare forward of the same draft over preallocated dense K/V.

The draft is of the demo's size (hidden 576, 2 layers, 9/3 heads of 64, vocabulary 8,192) with random
weights, on one thread, timed by that thread's own clock. The baseline is batched like the engine and has its
K/V side by side from the start, each layer's in memory of its own, at exactly the length needed: no blocks,
no gather, no padding, no requests. Two pairs are timed, their members alternating:

- proposal: ask again on open requests / `propose` over the dense K/V;
- advance: 3 accepted tokens a request with their rows, then a proposal / `context_rows`, a copy into the
  dense K/V, then `propose`.

The engine's side includes ordering, hashing and building the answers. Blocks come from a shuffled free list,
as in a pool that has been in use.

    python bench/engine.py [--pairs N] [--block-sizes 16,32,64,128] [--contexts 128,1024,4096,8192]
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sidedraft.drafts import load_draft
from sidedraft.drafts.base import Draft, DraftShape, Proposal
from sidedraft.engine import Engine, Work, plan_memory
from sidedraft.wire.advance import Advance, Opening, Outcome
from support.checkpoints import tiny_draft, tiny_target

BATCHES = (1, 8)
CONTEXTS = (128, 1024, 4096, 8192)
BLOCK_SIZES = (16, 32, 64, 128)
DEPTH = 5
ACCEPTED = 3
CHUNK = 256


@dataclass(frozen=True)
class Row:
    """Medians over `pairs` interleaved pairs: milliseconds, and engine / bare of each pair."""

    batch: int
    context: int
    block_size: int
    pairs: int
    bare: float
    proposal: float
    proposal_ratio: float
    bare_advance: float
    advance: float
    advance_ratio: float

    @property
    def ratio(self) -> float:
        return max(self.proposal_ratio, self.advance_ratio)


class DenseContext:
    """K/V of a batch in memory of its own, [B, kv_heads, capacity, head_dim] a layer; `length` in use."""

    def __init__(self, shape: DraftShape, batch: int, capacity: int, length: int, query_rows: int) -> None:
        size = (batch, shape.kv_heads, capacity + query_rows, shape.head_dim)
        self.layers = [(torch.randn(size), torch.randn(size)) for _ in range(shape.layers)]
        self.length, self.query_rows = length, query_rows
        self._all_positions = torch.arange(size[2]).expand(batch, -1)
        self._all_present = torch.ones(batch, size[2], dtype=torch.bool)

    @property
    def end(self) -> int:
        return self.length + self.query_rows

    @property
    def positions(self) -> Tensor:
        return self._all_positions[:, : self.end]

    @property
    def present(self) -> Tensor:
        return self._all_present[:, : self.end]

    def append(self, rows: Tensor) -> None:
        """rows: [B, n, layers, 2, kv_heads, head_dim]"""
        end = self.length + rows.shape[1]
        for layer, (keys, values) in enumerate(self.layers):
            keys[:, :, self.length : end] = rows[:, :, layer, 0].transpose(1, 2)
            values[:, :, self.length : end] = rows[:, :, layer, 1].transpose(1, 2)
        self.length = end

    def write_block(self, layer: int, keys: Tensor, values: Tensor) -> None:
        self.layers[layer][0][:, :, self.length : self.end] = keys.transpose(1, 2)
        self.layers[layer][1][:, :, self.length : self.end] = values.transpose(1, 2)

    def keys(self, layer: int) -> Tensor:
        return self.layers[layer][0][:, :, : self.end]

    def values(self, layer: int) -> Tensor:
        return self.layers[layer][1][:, :, : self.end]


class QuickFill:
    """The draft, but for rows that only fill a context: those are random instead of computed."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.family, self.shape, self.identity = draft.family, draft.shape, draft.identity
        self.dtype, self.device = draft.dtype, draft.device
        self.filling = True

    def context_rows(self, aux: Tensor, positions: Tensor) -> Tensor:
        if not self.filling:
            return self._draft.context_rows(aux, positions)
        return torch.randn(len(aux), self.shape.layers, 2, self.shape.kv_heads, self.shape.head_dim)

    def propose(self, *arguments: object) -> Proposal:
        return self._draft.propose(*arguments)  # type: ignore[arg-type]

    def weight_bytes(self) -> int:
        return self._draft.weight_bytes()


class PagedSide:
    """An engine with `batch` open requests."""

    def __init__(self, draft: Draft, batch: int, context: int, block_size: int) -> None:
        shape = draft.shape
        row_bytes = shape.layers * 2 * shape.kv_heads * shape.head_dim * 4
        plan = plan_memory(
            shape,
            draft.dtype,
            kv_memory=4 * batch * (context + 512) * (row_bytes + 32) + (8 << 20),
            max_requests=batch,
            block_size=block_size,
        )
        self._fill = QuickFill(draft)
        self._engine = Engine(self._fill, plan)
        random.Random(0).shuffle(self._engine._pool._free)
        self._sequencer = self._engine.sequencer()
        self._numbers, self._ends = [0] * batch, [0] * batch
        self._aux = np.random.default_rng(0).standard_normal((CHUNK, shape.row_width), dtype=np.float32)
        while self._ends[0] < context:
            self._step(min(CHUNK, context - self._ends[0]), 0)
        self._fill.filling = False

    def propose(self) -> None:
        self._step(0, DEPTH)

    def advance(self) -> None:
        self._step(ACCEPTED, DEPTH)

    def _step(self, count: int, depth: int) -> None:
        rows = self._aux[:count].view(np.uint8)
        works: list[Work] = []
        for request, (number, end) in enumerate(zip(self._numbers, self._ends, strict=True)):
            tokens = np.arange(end, end + count, dtype=np.int32) % 8000 + request
            opening = Opening() if number == 0 else None
            advance = Advance(
                request, 0, number, end, tokens, 7, depth, end, rows if count else None, opening
            )
            works += self._sequencer.push(Work(1, "default", b"target", "f32", advance, 0.0, None))
            self._numbers[request] += 1
            self._ends[request] += count
        answers = self._engine.step(works)
        wanted = Outcome.DRAFTED if depth else Outcome.INGESTED
        if any(answer.outcome is not wanted for answer in answers):
            raise RuntimeError(f"unexpected answers: {answers}")


class DenseSide:
    """The same draft over dense K/V."""

    def __init__(self, draft: Draft, batch: int, context: int, capacity: int) -> None:
        self._draft = draft
        self._context = DenseContext(draft.shape, batch, capacity, context, draft.shape.query_rows(DEPTH))
        self._anchors = torch.full((batch,), 7)
        self._batch = batch
        self._aux = torch.randn(batch * ACCEPTED, draft.shape.row_width)

    @torch.inference_mode()
    def propose(self) -> None:
        positions = torch.full((self._batch,), self._context.length)
        self._draft.propose(self._anchors, positions, DEPTH, self._context).tokens.tolist()

    @torch.inference_mode()
    def advance(self) -> None:
        start = self._context.length
        positions = torch.arange(start, start + ACCEPTED).repeat(self._batch)
        rows = self._draft.context_rows(self._aux, positions)
        self._context.append(rows.view(self._batch, ACCEPTED, *rows.shape[1:]))
        self.propose()


def bench_draft(folder: Path) -> Draft:
    """A DSpark draft of the demo's size with random weights."""
    target = tiny_target(folder / "target", hidden=576, heads=9, kv_heads=3, vocab=8192)
    sizes = {"layers": 2, "heads": 9, "kv_heads": 3, "head_dim": 64, "max_depth": DEPTH, "markov_rank": 64}
    more = {"taps": (1, 2, 3, 4, 5), "overrides": {"max_position_embeddings": 16384}}
    return load_draft(tiny_draft(folder / "draft", "dspark", target=target, **sizes, **more), target)


def measure(
    batches: tuple[int, ...], contexts: tuple[int, ...], block_sizes: tuple[int, ...], pairs: int
) -> list[Row]:
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        draft = bench_draft(Path(folder))
        return [
            _compare(draft, batch, context, block_size, pairs)
            for batch in batches
            for context in contexts
            for block_size in block_sizes
        ]


def _compare(draft: Draft, batch: int, context: int, block_size: int, pairs: int) -> Row:
    start = max(1, context - ACCEPTED * (pairs + 2))
    paged = PagedSide(draft, batch, start, block_size)
    dense = DenseSide(draft, batch, start, context + 2 * ACCEPTED)
    advance, bare_advance, advance_ratio = _alternate(paged.advance, dense.advance, pairs)
    proposal, bare, proposal_ratio = _alternate(paged.propose, dense.propose, pairs)
    return Row(
        batch,
        context,
        block_size,
        pairs,
        bare,
        proposal,
        proposal_ratio,
        bare_advance,
        advance,
        advance_ratio,
    )


def _alternate(ours: Callable[[], None], base: Callable[[], None], pairs: int) -> tuple[float, float, float]:
    """Medians: ms of ours, ms of the baseline, and of the pairs' ratios. Two pairs first warm up."""
    times: list[tuple[float, float]] = []
    for turn in range(pairs + 2):
        taken = {}
        for side in (ours, base) if turn % 2 else (base, ours):
            started = time.thread_time()
            side()
            taken[side] = (time.thread_time() - started) * 1e3
        times.append((taken[ours], taken[base]))
    times = times[2:]
    medians = [statistics.median(column) for column in zip(*times, strict=True)]
    return medians[0], medians[1], statistics.median(one / other for one, other in times)


def table(rows: list[Row]) -> str:
    lines = [
        "| batch | context | block | bare ms | engine ms | ratio | + 3 rows: bare ms | engine ms | ratio |",
        "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {r.batch} | {r.context} | {r.block_size} "
        f"| {r.bare:.2f} | {r.proposal:.2f} | {r.proposal_ratio:.2f} "
        f"| {r.bare_advance:.2f} | {r.advance:.2f} | {r.advance_ratio:.2f} |"
        for r in rows
    ]
    return "\n".join(lines)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--batches", type=_numbers, default=BATCHES)
    parser.add_argument("--contexts", type=_numbers, default=CONTEXTS)
    parser.add_argument("--block-sizes", type=_numbers, default=BLOCK_SIZES)
    arguments = parser.parse_args()
    rows = measure(arguments.batches, arguments.contexts, arguments.block_sizes, arguments.pairs)
    print(table(rows))
    print(f"\nmedians of {arguments.pairs} interleaved pairs; ratios are medians of the pairs' ratios")
    return 0


if __name__ == "__main__":
    sys.exit(main())
