"""From a step of the target to what is stated of each of its requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from sidedraft.integrations.vllm.batch import StepBatch, read_prefix
from sidedraft.integrations.vllm.planning import Progress, sound
from sidedraft.integrations.vllm.requests import Known, RequestTable
from sidedraft.verifier.submission import Submission

REOPENED_AT_ONCE = 4
"""Requests stated anew in one step, with all their tokens. New ones do not count."""


class Stater:
    """Continues what was stated of a request, or states it anew from its first token.

    Args:
        req_states: vLLM's `RequestState`, from which the tokens before a step are read.
        vocab_size: of the target as the server was told.
    """

    def __init__(self, table: RequestTable, req_states: Any, vocab_size: int) -> None:
        self._table = table
        self._req_states = req_states
        self._vocab_size = vocab_size

    def submissions(
        self, step: StepBatch, gained: Progress, known: Sequence[Known]
    ) -> list[Submission | None]:
        """One a request of the step, in its order; None for those of which nothing is stated now."""
        columns = step.columns
        good = sound(columns, self._vocab_size).tolist()
        firsts, kept, depths = gained.firsts.tolist(), gained.kept.tolist(), gained.depths.tolist()
        starts, ends, prompts = columns.starts.tolist(), columns.ends.tolist(), columns.prompts.tolist()
        next_tokens = columns.next_tokens.tolist()
        anew = REOPENED_AT_ONCE
        found: list[Submission | None] = [None] * len(known)
        for index, request in enumerate(known):
            request_id, first = step.request_ids[index], firsts[index]
            request.fit &= good[index]
            if request.key is not None and (not request.fit or first > request.committed):
                self._table.doubt([request_id])
            prefix = None
            if request.key is None and request.fit:
                anew -= request.doubtful
                if anew < 0 and request.doubtful:
                    continue
                prefix = self._open(request_id, request, step.slots[index], first)
            if not request.fit:
                continue
            request.committed = ends[index]
            rows = slice(starts[index], starts[index] + kept[index])
            found[index] = Submission(
                request=request.key,
                first=first,
                tokens=columns.tokens[rows],
                next_token=next_tokens[index],
                depth=depths[index],
                rows=step.rows[rows],
                rows_at=first,
                prefix=prefix,
                context_key=request.identity.context_key,
                private=request.identity.private,
                horizon=prompts[index],
            )
        return found

    def _open(self, request_id: str, request: Known, slot: int, first: int) -> Tensor | None:
        """The tokens before `first`, which the target had in its cache or computed without us."""
        prefix = read_prefix(self._req_states, slot, first) if first else None
        if prefix is not None and not 0 <= int(prefix.min()) <= int(prefix.max()) < self._vocab_size:
            request.fit = False
        else:
            self._table.open(request_id, request)
        return prefix
