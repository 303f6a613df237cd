"""Requests of random lengths and lives in great number, to see what they leave behind."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import numpy as np

from sidedraft.engine import Engine, plan_memory
from support.engine_client import Client, Request, text
from support.fake_draft import FakeDraft, fake_shape

RESIDENT = 8
"""Requests open at once."""


def resident_bytes() -> int:
    """Resident memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class ManyRequests:
    """Opens, advances, rewinds, resumes and releases requests over a pool that cannot hold them all."""

    def __init__(self, seed: int = 0) -> None:
        draft = FakeDraft(fake_shape(max_position=2048), remember=False)
        plan = plan_memory(draft.shape, draft.dtype, kv_memory=250_000, max_requests=RESIDENT, block_size=16)
        self.client = Client(Engine(draft, plan))
        self._chance = random.Random(seed)
        self._open: list[Request] = []
        self._aux = np.zeros((400, self.client.width), np.float32)

    def run(self, requests: int) -> None:
        """Until so many more requests have been opened."""
        for _ in range(requests):
            for step in self._steps():
                self.client.step(*step)

    def _steps(self) -> Iterator[list]:
        chance = self._chance
        if len(self._open) == RESIDENT:
            self._open.pop(chance.randrange(RESIDENT)).release()
        prompt = text(chance.randrange(1, 300), seed=chance.randrange(50))
        known = chance.choice((0, 0, len(prompt) // 2))
        request = self.client.open(prompt[:known], private=chance.random() < 0.1)
        self._open.append(request)
        yield [request.advance(prompt[known:], aux=self._aux[: len(prompt) - known])]
        for _ in range(chance.randrange(4)):
            yield [self._advance(one) for one in chance.sample(self._open, min(3, len(self._open)))]

    def _advance(self, request: Request):
        back = self._chance.choice((0, 0, 0, 0, 20))
        first = max(0, len(request.tokens) - back)
        count = self._chance.randrange(1, 5)
        new = text(first + count, seed=request.id % 50)[first:]
        return request.advance(new, first=first, aux=self._aux[:count], depth=self._chance.randrange(4))
