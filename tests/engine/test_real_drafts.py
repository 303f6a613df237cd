"""With real drafts: the engine proposes what the draft alone proposes over the same rows laid out plainly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from sidedraft.drafts.base import Draft, Proposal
from sidedraft.drafts.registry import load_draft
from sidedraft.engine import Engine, plan_memory
from sidedraft.wire.advance import Answer, Outcome
from support.checkpoints import tiny_draft, tiny_target
from support.dense_context import DenseContext
from support.engine_client import Client, Request, random_aux, text
from support.recording_draft import RecordingDraft

TOLERANCE = 2e-4
VARIANTS = {
    "dflash full": ("dflash", {}),
    "dflash sliding": ("dflash", {"windows": (12, 12)}),
    "dflash mixed causal": ("dflash", {"windows": (20, None), "causal": True}),
    "dspark anchor": ("dspark", {}),
    "dspark bonus reduced": ("dspark", {"layout": "bonus", "format": "speculators", "draft_vocab": 48}),
}


@pytest.fixture(scope="module", params=VARIANTS)
def draft(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Draft:
    folder: Path = tmp_path_factory.mktemp("draft")
    family, options = VARIANTS[request.param]
    target = tiny_target(folder / "target")
    return load_draft(tiny_draft(folder / "draft", family, target=target, **options), target)


@pytest.fixture
def client(draft: Draft) -> Client:
    plan = plan_memory(draft.shape, draft.dtype, kv_memory=4 << 20, max_requests=8, block_size=16)
    return Client(Engine(RecordingDraft(draft), replace(plan, blocks=100), poison=True))


def alone(
    draft: Draft, aux: torch.Tensor, positions: torch.Tensor, anchor: int, end: int, depth: int
) -> Proposal:
    """What the draft proposes over these rows, computed one by one in a layout of its own."""
    rows = torch.cat([draft.context_rows(aux[i : i + 1], positions[i : i + 1]) for i in range(len(aux))])
    context = DenseContext(
        draft.shape, [rows], [positions], torch.tensor([end]), draft.shape.query_rows(depth)
    )
    return draft.propose(torch.tensor([anchor]), torch.tensor([end]), depth, context)


def compare(client: Client, answer: Answer, expected: Proposal) -> None:
    assert answer.outcome is Outcome.DRAFTED
    given = client.engine._passes._draft.logits_at(answer.committed)
    torch.testing.assert_close(given, expected.logits[0], atol=TOLERANCE, rtol=TOLERANCE)
    assert answer.tokens.tolist() == expected.tokens[0].tolist()
    if expected.confidence is not None:
        given = torch.from_numpy(answer.confidence)
        torch.testing.assert_close(given, expected.confidence[0], atol=TOLERANCE, rtol=0)


@torch.inference_mode()
def test_over_incremental_steps_batched_with_others_and_after_a_restore(client: Client, draft: Draft) -> None:
    depth = draft.shape.max_depth
    aux = {seed: torch.from_numpy(random_aux(client.rng, 200, client.width)) for seed in range(3)}
    requests: dict[int, Request] = {seed: client.open() for seed in range(3)}
    for counts in ((30, 50, 3), (1, 4, 2), (5, 1, 1)):
        works = []
        for (seed, request), count in zip(requests.items(), counts, strict=True):
            start = len(request.tokens)
            new = text(start + count, seed=seed)[start:]
            works.append(request.advance(new, aux=aux[seed][start : start + count].numpy(), depth=depth))
        answers = client.step(*works)
        for seed, answer in enumerate(answers):
            end = len(requests[seed].tokens)
            expected = alone(draft, aux[seed][:end], torch.arange(end), 7, end, depth)
            compare(client, answer, expected)

    restored = client.open(text(48, seed=1))
    [answer] = client.step(restored.no_rows(text(0), depth=depth))
    compare(client, answer, alone(draft, aux[1][:48], torch.arange(48), 7, 48, depth))


@torch.inference_mode()
def test_holes_are_masked_and_positions_kept(client: Client, draft: Draft) -> None:
    aux = torch.from_numpy(random_aux(client.rng, 40, client.width))
    request = client.open()
    client.step(request.advance(text(10), aux=aux[:8].numpy()))
    client.step(request.no_rows(text(20)[10:]))
    work = request.advance(text(40)[20:], aux=aux[23:37].numpy(), rows_at=23, depth=2)
    [answer] = client.step(work)
    present = torch.cat([torch.arange(8), torch.arange(23, 37)])
    low = answer.context_start
    present = present[present >= low]
    compare(client, answer, alone(draft, aux[present], present, 7, 40, 2))


@torch.inference_mode()
def test_equal_blocks_and_layout_give_equal_bits(client: Client, draft: Draft) -> None:
    request = client.open()
    client.step(request.advance(text(48)))
    client.step(request.no_rows(text(0), depth=2))
    fork = client.open(text(48))
    client.step(fork.no_rows(text(0), depth=2))
    (_, first), (_, second) = client.engine._passes._draft._calls[-2:]
    assert first.logits.equal(second.logits)
