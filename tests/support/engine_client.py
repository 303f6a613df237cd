"""Drives an engine the way a server does: works with generations and numbers, through a sequencer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from sidedraft.drafts.base import Draft
from sidedraft.engine import Engine, Work, plan_memory
from sidedraft.wire.advance import Advance, Answer, Opening, Tokens

RowBytes = np.ndarray


def make_engine(
    draft: Draft,
    *,
    blocks: int = 64,
    block_size: int = 16,
    requests: int = 16,
    window: int | None = None,
    memory: int = 2 << 20,
) -> Engine:
    """An engine with a pool of exactly `blocks` blocks to use, and unwritten memory poisoned.

    `memory` sizes the scratch.
    """
    plan = plan_memory(
        draft.shape,
        draft.dtype,
        kv_memory=memory,
        max_requests=requests,
        window=window,
        block_size=block_size,
    )
    if blocks >= plan.blocks:
        raise ValueError(f"{blocks} blocks do not fit into {memory} bytes")
    return Engine(draft, replace(plan, blocks=blocks + 1), poison=True, secret=b"test")


def random_aux(rng: np.random.Generator, rows: int, width: int) -> np.ndarray:
    """float32 [rows, width]"""
    return rng.standard_normal((rows, width)).astype(np.float32)


def tokens(*values: int) -> Tokens:
    return np.array(values, dtype=np.int32)


def text(length: int, *, seed: int = 0) -> Tokens:
    """Tokens that differ from another seed's everywhere, all below 90."""
    return ((np.arange(length) * (2 * seed + 1) + 7 * seed) % 90).astype(np.int32)


@dataclass
class Request:
    """One generation of a request at the verifier's end."""

    client: Client
    id: int
    generation: int = 0
    number: int = 0
    tokens: Tokens = field(default_factory=lambda: np.zeros(0, np.int32))
    opening: Opening | None = None

    def advance(
        self,
        new: Tokens,
        *,
        first: int | None = None,
        depth: int = 0,
        anchor: int = 7,
        aux: np.ndarray | None = None,
        rows_at: int | None = None,
        expires: float | None = None,
    ) -> Work:
        """The next work: `new` tokens from `first` on (default: the end), rows for all of them unless `aux`
        (float32 [r, width], from `rows_at`) says otherwise."""
        first = len(self.tokens) if first is None else first
        width = self.client.width
        if aux is None:
            aux = random_aux(self.client.rng, len(new), width)
        rows = np.ascontiguousarray(aux, dtype=np.float32).view(np.uint8).reshape(len(aux), 4 * width)
        advance = Advance(
            self.id,
            self.generation,
            self.number,
            first,
            new.astype(np.int32),
            anchor,
            depth,
            first if rows_at is None else rows_at,
            rows if len(rows) else None,
            self.opening,
        )
        self.opening = None
        self.number += 1
        self.tokens = np.concatenate([self.tokens[:first], advance.tokens])
        return self.client.work(advance, expires)

    def no_rows(self, new: Tokens, **options: object) -> Work:
        """As `advance`, without rows."""
        return self.advance(new, aux=np.zeros((0, self.client.width), np.float32), **options)  # type: ignore[arg-type]

    def release(self) -> None:
        self.client.release(self)


@dataclass
class Client:
    """A verifier of one session, in front of an engine."""

    engine: Engine
    owner: int = 1
    namespace: str = "default"
    target: bytes = b"target"
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    _ids: Iterator[int] = field(default_factory=lambda: iter(range(1, 1 << 40)))

    def __post_init__(self) -> None:
        self.sequencer = self.engine.sequencer()
        self.width = self.engine._shape.row_width

    def open(self, prefix: Tokens | None = None, *, of: Request | None = None, **opening: object) -> Request:
        """A new request (a new generation of `of` when given), not yet sent."""
        prefix = np.zeros(0, np.int32) if prefix is None else prefix.astype(np.int32)
        request = Request(self, next(self._ids) if of is None else of.id, tokens=prefix)
        request.generation = 0 if of is None else of.generation + 1
        request.opening = Opening(prefix=prefix, **opening)  # type: ignore[arg-type]
        return request

    def work(self, advance: Advance, expires: float | None = None) -> Work:
        return Work(self.owner, self.namespace, self.target, "f32", advance, 0.0, expires)

    def step(self, *works: Work) -> list[Answer]:
        """Order and apply works in one step."""
        return self.engine.step([due for work in works for due in self.sequencer.push(work)])

    def release(self, request: Request) -> None:
        self.sequencer.release(self.owner, request.id, request.generation)
        self.engine.release(self.owner, request.id, request.generation)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Equal shapes and equal bits (NaN equal to itself)."""
    return one.shape == other.shape and one.view(torch.int32).equal(other.view(torch.int32))
