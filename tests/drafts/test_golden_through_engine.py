"""The golden cases through the paged engine: in pieces, beside other requests, and after a prefix restore."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sidedraft.drafts import load_draft
from sidedraft.wire.advance import Answer, Outcome
from support.engine_client import Client, make_engine, random_aux, text
from support.golden import TARGET, TOLERANCE, GoldenCase, GoldenStep, golden_case, golden_names
from support.recording_draft import RecordingDraft

BLOCK = 16


def client_of(case: GoldenCase) -> tuple[Client, RecordingDraft]:
    draft = RecordingDraft(load_draft(case.draft, TARGET))
    return Client(make_engine(draft, block_size=BLOCK)), draft


def tokens_of(step: GoldenStep) -> np.ndarray:
    return text(step.position)[step.first :] % 60


def check(step: GoldenStep, answer: Answer, draft: RecordingDraft) -> None:
    assert answer.outcome is Outcome.DRAFTED
    assert answer.tokens.tolist() == step.tokens.tolist()
    torch.testing.assert_close(draft.logits_at(step.position), step.logits, atol=TOLERANCE, rtol=0)


@pytest.mark.parametrize("name", golden_names())
def test_beside_other_requests(name: str) -> None:
    case = golden_case(name)
    client, draft = client_of(case)
    request, others = client.open(), [client.open() for _ in range(3)]
    rng = np.random.default_rng(3)
    for at, step in enumerate(case.steps):
        depth = len(step.tokens)
        work = request.advance(tokens_of(step), aux=step.aux.numpy(), depth=depth, anchor=step.anchor)
        beside = [
            other.advance(
                text(50, seed=at + 1)[: 20 + 7 * i] % 60,
                aux=random_aux(rng, 20 + 7 * i, client.width),
                depth=depth,
                anchor=5,
            )
            for i, other in enumerate(others)
        ]
        answers = client.step(*beside[:2], work, *beside[2:])
        check(step, answers[2], draft)


@pytest.mark.parametrize("name", golden_names())
def test_after_a_prefix_restore(name: str) -> None:
    """A second request finds the first one's block and computes only what came after it."""
    case = golden_case(name)
    client, draft = client_of(case)
    first = client.open()
    for step in case.steps[:-1]:
        client.step(first.advance(tokens_of(step), aux=step.aux.numpy()))
    first.release()
    last = case.steps[-1]
    assert last.first == BLOCK, "the case has a whole block before its last step"
    computed = draft.rows_computed

    second = client.open(text(last.first) % 60)
    work = second.advance(tokens_of(last), aux=last.aux.numpy(), depth=len(last.tokens), anchor=last.anchor)
    answer = client.step(work)[0]
    check(last, answer, draft)
    assert draft.rows_computed - computed == len(last.aux)
    assert (answer.context_start, answer.rows_present) == (0, last.position)
