"""A verifier's session with the server that is measured, under a label of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sidedraft.bench.errors import BenchError
from sidedraft.bench.served import Served
from sidedraft.drafts.projection import load_projection
from sidedraft.settings import VerifierSettings
from sidedraft.verifier.drafter import Drafter
from sidedraft.verifier.facts import VerifierFacts
from sidedraft.verifier.state.outcome import NoDraft
from sidedraft.verifier.submission import Submission
from sidedraft.wire.agreement import Agreement
from sidedraft.wire.rows import FORMATS

LABEL = "sidedraft-bench"
"""What the server's status calls us."""

PATIENCE = 60.0
"""Seconds until a proposal is given up; nothing else is ever late, so that slow servers are measured too."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one submit and its answers took, in seconds."""

    total: float
    """From submit until the drafts were there."""
    blocked: float
    """Of it, in `submit`."""
    queue: float
    """On the server: until the engine took it up."""
    model: float
    """On the server: context rows and query pass."""
    server: float
    """On the server, in all."""

    @property
    def client(self) -> float:
        """Verifier and wire: all that is not on the server."""
        return self.total - self.server

    @property
    def overhead(self) -> float:
        """All but the model."""
        return self.total - self.model


class Session:
    """One `Drafter`, whose requests are private: neither shared with other verifiers nor kept."""

    def __init__(self, drafter: Drafter, served: Served, agreement: Agreement) -> None:
        self.drafter = drafter
        self.agreement = agreement
        self._vocab = served.target.vocab_size
        self._random = np.random.default_rng(0)
        width = len(served.target.taps) * served.target.hidden_size
        self._width = width
        self._rows = torch.randn(1, width, generator=torch.Generator().manual_seed(0)).bfloat16()

    def rows(self, count: int) -> Tensor:
        """bfloat16 [count, width], random; the same memory in every call."""
        if len(self._rows) < count:
            generator = torch.Generator().manual_seed(0)
            self._rows = torch.randn(count, self._width, generator=generator).bfloat16()
        return self._rows[:count]

    def state(self, request: str, first: int, count: int, depth: int) -> Submission:
        """`count` random tokens from `first` on, with their rows."""
        tokens = self._random.integers(0, self._vocab, count)
        return Submission(
            request, first, tokens, next_token=1, depth=depth, rows=self.rows(count), private=True
        )

    def step(self, submissions: Sequence[Submission]) -> Step:
        """Submit and wait. Raises BenchError when one that asked gets no draft."""
        started = time.perf_counter()
        pending = self.drafter.submit(submissions)
        handed_over = time.perf_counter()
        outcomes = pending.result()
        total = time.perf_counter() - started
        for one in submissions:
            outcome = outcomes[one.request]
            if one.depth and isinstance(outcome, NoDraft):
                why = outcome.detail or self.drafter.status().refusal
                raise BenchError(f"no draft: {outcome.reason.value}" + (f": {why}" if why else ""))
        times = pending.times
        return Step(
            total=total,
            blocked=handed_over - started,
            queue=times["server_queue"],
            model=times["server_ingest"] + times["server_propose"],
            server=times["server_total"],
        )

    def fill(self, requests: Sequence[str], rows: int) -> None:
        """Open requests with a context of `rows` each, and wait until the server has them all."""
        for request in requests:
            self.step([self.state(request, 0, rows, 1)])

    def release(self, requests: Sequence[str]) -> None:
        self.drafter.release(requests)

    def bytes_of_rows(self) -> int:
        """Sent so far."""
        return self.drafter.status().counters["bytes_rows"]


@contextmanager
def connected(
    address: str, served: Served, kind: str, *, namespace: str, settings: VerifierSettings, wait: float
) -> Iterator[Session]:
    """A session whose rows travel as `kind` (of `wire.rows.KINDS`); at the end it leaves nothing behind.

    Raises BenchError when there is none within `wait` seconds; AddressError.
    """
    projection = None
    if kind not in FORMATS:
        if served.folder is None:
            raise BenchError(f"{kind}: the draft's folder is needed for its projection (--draft)")
        projection = load_projection(served.folder)
    facts = VerifierFacts(
        target=served.target,
        draft=served.draft,
        max_position=served.max_position,
        label=LABEL,
        namespace=namespace,
        row_formats=(kind,),
        projection=projection,
    )
    with Drafter(address, facts, settings) as drafter:
        drafter.wait_connected(wait)
        status = drafter.status()
        if status.agreement is None:
            why = status.refusal or f"it did not answer within {wait:g} s"
            raise BenchError(f"no session with {address}: {why}")
        yield Session(drafter, served, status.agreement)  # closing says goodbye: the server lets go of all
