"""Tries every kind of shape that will be served, on random rows, before the server calls itself ready."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from sidedraft.drafts.base import Draft, DraftShape
from sidedraft.drafts.row_codec import encode
from sidedraft.engine import Engine, Work
from sidedraft.server.ending import StartError
from sidedraft.wire.advance import Advance, Answer, Opening, Outcome
from sidedraft.wire.rows import FORMATS, KINDS, RowFormat, of_kind

OWNER = 0
"""Sessions count from 1."""

CONTEXTS = (1, 64, 1024)
"""Rows of context that are tried, as far as the memory plan allows them."""


@dataclass(frozen=True, slots=True)
class Case:
    """A batch of equal proposals."""

    batch: int
    depth: int
    rows: int
    """Context rows sent for each."""
    first: int = 0
    """Where they begin."""
    row_format: RowFormat = FORMATS["f32"]

    def __str__(self) -> str:
        return (
            f"{self.batch} requests, depth {self.depth}, {self.rows} {self.row_format.kind} rows "
            f"from position {self.first}"
        )


def cases(engine: Engine, draft: Draft) -> list[Case]:
    """Every depth, every row format, batches in powers of two up to the greatest, contexts short and long,
    and the last position that is served.
    """
    plan = engine.plan
    depth, longest = plan.max_depth, min(plan.context_limit, plan.max_position - plan.query_rows)
    found = [Case(1, d, 1) for d in range(1, depth + 1)]
    projection = None if draft.projection is None else draft.projection.facts
    kinds = FORMATS if projection is None else KINDS
    found += [Case(1, depth, 1, row_format=of_kind(kind, projection)) for kind in kinds]
    found += [Case(1, depth, rows) for rows in CONTEXTS if rows <= min(longest, plan.pool_rows)]
    batch = 2
    while batch < 2 * plan.max_requests:
        here = min(batch, plan.max_requests)
        rows = max(1, min(CONTEXTS[1], longest, plan.pool_rows // here))
        found.append(Case(here, depth, rows))
        batch *= 2
    last = plan.max_position - plan.query_rows - 1
    if last > 0:
        found.append(Case(1, depth, 1, first=last))
    return [case for case in dict.fromkeys(found) if case.rows <= longest]


def smoke_test(engine: Engine, draft: Draft, progress: Callable[[int, int], None]) -> None:
    """Run all cases and leave nothing behind. `progress(done, total)` may raise to break off.

    Raises `StartError`: a case raised, or gave something else than a draft.
    """
    todo, shape = cases(engine, draft), draft.shape
    generator = np.random.default_rng(0)
    for done, case in enumerate(todo):
        progress(done, len(todo))
        try:
            answers = _run(engine, shape, case, generator)
        except Exception as error:
            raise StartError(f"smoke test: {case}: {type(error).__name__}: {error}") from error
        for answer in answers:
            _check(answer, case, shape)
    progress(len(todo), len(todo))


def _run(engine: Engine, shape: DraftShape, case: Case, generator: np.random.Generator) -> list[Answer]:
    sequencer = engine.sequencer()
    works = [_work(case, shape, request, generator) for request in range(case.batch)]
    due = [ready for work in works for ready in sequencer.push(work)]
    try:
        return engine.step(due)
    finally:
        engine.release_owner(OWNER)


def _work(case: Case, shape: DraftShape, request: int, generator: np.random.Generator) -> Work:
    aux_width = shape.row_width
    values = generator.standard_normal((case.rows, case.row_format.values(aux_width)), dtype=np.float32)
    rows = torch.empty(case.rows, case.row_format.row_bytes(aux_width), dtype=torch.uint8)
    encode(torch.from_numpy(values), case.row_format, rows)
    tokens = generator.integers(0, shape.vocab_size, case.first + case.rows + 1, dtype=np.int32)
    end = case.first + case.rows
    advance = Advance(
        request=request,
        generation=0,
        number=0,
        first=case.first,
        tokens=tokens[case.first : end],
        next_token=int(tokens[end]),
        depth=case.depth,
        rows_at=case.first,
        rows=rows.numpy(),
        # Private: random rows must not be found by anyone.
        opening=Opening(prefix=tokens[: case.first], private=True),
    )
    return Work(OWNER, "smoke", b"", case.row_format.name, advance, arrived=time.monotonic(), expires=None)


def _check(answer: Answer, case: Case, shape: DraftShape) -> None:
    if answer.outcome is not Outcome.DRAFTED:
        reason = answer.detail or answer.error or answer.outcome.name.lower()
        raise StartError(f"smoke test: {case}: no draft ({reason})")
    if len(answer.tokens) != case.depth:
        raise StartError(f"smoke test: {case}: {len(answer.tokens)} draft tokens")
    if answer.tokens.min() < 0 or answer.tokens.max() >= shape.vocab_size:
        raise StartError(f"smoke test: {case}: a token outside the vocabulary of {shape.vocab_size}")
