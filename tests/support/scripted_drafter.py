"""A drafter without a server: proposals come from a function, and everything it was told is kept."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from sidedraft.verifier.submission import Draft, NoDraft, Reason, Submission


@dataclass
class Told:
    """What one request reported: accepted tokens, their aux rows, and the drafts it asked for."""

    tokens: list[int] = field(default_factory=list)
    rows: list[Tensor] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)
    next_token: int = -1
    released: int = 0

    @property
    def aux(self) -> Tensor:
        """[len(tokens), row_width]."""
        return torch.cat(self.rows)


Propose = Callable[[list[int], int], list[int] | None]
"""(accepted tokens and the anchor, depth) -> draft, None for no draft."""


class ScriptedDrafter:
    """Stands in for `verifier.drafter.Drafter`; refuses reports that do not continue the last one."""

    def __init__(self, propose: Propose) -> None:
        self._propose = propose
        self.told: dict[Hashable, Told] = {}
        self._answers: dict[Hashable, Draft | NoDraft] = {}

    def submit(self, submissions: Iterable[Submission]) -> ScriptedDrafter:
        self._answers = {}
        for one in submissions:
            told = self.told.setdefault(one.request, Told())
            if one.first != len(told.tokens) or (told.tokens and one.tokens[0] != told.next_token):
                raise AssertionError(f"{one.first}, {one.tokens} does not continue {len(told.tokens)} tokens")
            if one.rows is None or one.rows_at != one.first or len(one.rows) != len(one.tokens):
                raise AssertionError("every accepted token must come with its row")
            if one.private or one.context_key:
                raise AssertionError("tokens alone determine the context: it is to be shared")
            if told.released:
                raise AssertionError("reported after its release")
            told.tokens += list(one.tokens)
            told.rows.append(one.rows.clone())
            told.next_token = one.next_token
            told.depths.append(one.depth)
            draft = self._propose([*told.tokens, one.next_token], one.depth) if one.depth else None
            self._answers[one.request] = (
                NoDraft(Reason.LATE) if draft is None else Draft(np.array(draft[: one.depth], np.int32))
            )
        return self

    @property
    def times(self) -> dict[str, float]:
        return {"client_total": 0.001}

    def result(self) -> dict[Hashable, Draft | NoDraft]:
        return self._answers

    def release(self, requests: Iterable[Hashable]) -> None:
        for request in requests:
            self.told[request].released += 1
