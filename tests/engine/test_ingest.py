"""Rows arrive in several formats, are computed in bounded slices, and only where they are wanted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sidedraft.drafts.row_codec import decode, encode
from sidedraft.engine import Engine
from sidedraft.wire.advance import Advance, Opening
from sidedraft.wire.rows import FORMATS
from support.engine_client import Client, make_engine, random_aux, text
from support.fake_draft import FakeDraft


@pytest.mark.parametrize("name", FORMATS)
def test_rows_become_the_drafts_dtype(name: str) -> None:
    draft = FakeDraft()
    client = Client(make_engine(draft))
    aux = torch.from_numpy(random_aux(client.rng, 5, client.width))
    rows = torch.empty(5, FORMATS[name].row_bytes(client.width), dtype=torch.uint8)
    encode(aux, FORMATS[name], rows)
    work = client.work(Advance(1, 0, 0, 0, text(5), 7, 1, 0, rows.numpy(), Opening()))
    work.row_format = name
    [answer] = client.step(work)
    carried = decode(rows, FORMATS[name], torch.float32)
    assert not carried.equal(torch.zeros_like(carried))
    assert draft.seen[int(answer.tokens[0])].rows.equal(draft.rows_of(carried, torch.arange(5)))


def test_rows_of_a_step_are_computed_together_and_in_slices() -> None:
    draft = FakeDraft()
    base = make_engine(draft)
    engine = Engine(draft, replace(base.plan, ingest_bytes=10 * 16 + 15), poison=True)
    client = Client(engine)
    sizes = []
    compute = draft.context_rows

    def spy(aux, positions):
        sizes.append(len(aux))
        return compute(aux, positions)

    draft.context_rows = spy
    requests = [client.open() for _ in range(5)]
    client.step(*(request.advance(text(2, seed=i)) for i, request in enumerate(requests)))
    assert sizes == [10]
    sizes.clear()
    [answer] = client.step(client.open().advance(text(33), depth=1))
    assert sizes == [10, 10, 10, 3]
    assert draft.seen[int(answer.tokens[0])].positions.tolist() == list(range(33))


def test_rows_that_are_read_only_or_unaligned_are_taken() -> None:
    draft = FakeDraft()
    client = Client(make_engine(draft))
    request = client.open()
    aux = random_aux(client.rng, 6, client.width)
    work = request.advance(text(6), aux=aux, depth=1)
    data = np.frombuffer(b"x" + aux.tobytes(), dtype=np.uint8)[1:].reshape(6, -1)
    assert not data.flags.writeable
    work.advance.rows = data
    [answer] = client.step(work)
    expected = draft.rows_of(torch.from_numpy(aux), torch.arange(6))
    assert draft.seen[int(answer.tokens[0])].rows.equal(expected)


def test_only_absent_rows_are_computed() -> None:
    draft = FakeDraft()
    client = Client(make_engine(draft))
    request = client.open()
    client.step(request.advance(text(20)[:10]))
    client.step(request.advance(text(20)[5:], first=5))
    assert draft.computed == 20
    assert client.engine.stats().counters.rows_dropped == 5
