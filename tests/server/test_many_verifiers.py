"""Several verifiers at once on one server: each gets the drafts that an engine of its own would give it."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from sidedraft.drafts import Draft, load_draft
from sidedraft.settings import VerifierSettings
from sidedraft.verifier.drafter import Drafter
from sidedraft.verifier.facts import VerifierFacts
from sidedraft.verifier.submission import Draft as Drafted
from sidedraft.verifier.submission import Submission
from sidedraft.wire.messages import DraftFacts, TargetFacts
from support.checkpoints import tiny_draft, tiny_target
from support.engine_client import Client, make_engine
from support.server_run import ServerRun

TAPS, HIDDEN, VOCAB, DEPTH = (1, 3), 32, 97, 3
VERIFIERS, REQUESTS, STEPS = 3, 4, 6
PROMPT = 600
"""Tokens whose rows need the bulk connection by the limits of the test."""


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("s")
    target = tiny_target(folder / "target", hidden=HIDDEN, vocab=VOCAB)
    tiny_draft(folder / "draft", "dspark", target=target, taps=TAPS, max_depth=DEPTH)
    return folder


def tokens_of(verifier: int, request: int) -> np.ndarray:
    rng = np.random.default_rng([verifier, request])
    return rng.integers(0, VOCAB, PROMPT + STEPS + 1, dtype=np.int32)


def rows_of(verifier: int, request: int) -> np.ndarray:
    rng = np.random.default_rng([verifier, request, 1])
    return rng.standard_normal((PROMPT + STEPS, len(TAPS) * HIDDEN), dtype=np.float32)


def spans() -> list[tuple[int, int]]:
    """What each step covers: the prompt, then a token at a time."""
    return [(0, PROMPT)] + [(PROMPT + i, PROMPT + i + 1) for i in range(STEPS)]


def expected(draft: Draft, verifier: int, request: int) -> list[list[int]]:
    client = Client(make_engine(draft))
    alone = client.open()
    tokens, rows = tokens_of(verifier, request), rows_of(verifier, request)
    drafts = []
    for first, end in spans():
        work = alone.advance(tokens[first:end], depth=DEPTH, anchor=int(tokens[end]), aux=rows[first:end])
        (answer,) = client.step(work)
        drafts.append(answer.tokens.tolist())
    return drafts


def run_verifier(address: str, verifier: int, found: dict[tuple[int, int], list[list[int]]]) -> None:
    facts = VerifierFacts(
        target=TargetFacts(taps=TAPS, hidden_size=HIDDEN, vocab_size=VOCAB),
        draft=DraftFacts(family="dspark", layout="anchor", max_depth=DEPTH),
        max_position=4096,
        label=f"verifier-{verifier}",
    )
    with Drafter(address, facts, VerifierSettings(deadline=60.0)) as drafter:
        assert drafter.wait_connected(60.0)
        for first, end in spans():
            submissions = []
            for request in range(REQUESTS):
                tokens, rows = tokens_of(verifier, request), rows_of(verifier, request)
                submissions.append(
                    Submission(request, first, tokens[first:end], int(tokens[end]), DEPTH, rows[first:end])
                )
            outcomes = drafter.submit(submissions).result()
            for request in range(REQUESTS):
                outcome = outcomes[request]
                assert isinstance(outcome, Drafted), outcome
                found.setdefault((verifier, request), []).append(outcome.tokens.tolist())


def test_each_verifier_gets_its_own_drafts(folder: Path) -> None:
    run = ServerRun(folder, max_requests=VERIFIERS * REQUESTS, kv_memory=16 << 20)
    run.wait_ready()
    found: dict[tuple[int, int], list[list[int]]] = {}
    threads = [
        threading.Thread(target=run_verifier, args=(run.address, verifier, found))
        for verifier in range(VERIFIERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    counts = run.server.parts.board.status()["counts"]
    run.server.stop("done")
    assert run.end().status == 0
    draft = load_draft(folder / "draft", folder / "target")
    for verifier in range(VERIFIERS):
        for request in range(REQUESTS):
            assert found[verifier, request] == expected(draft, verifier, request)
    assert counts["engine"]["proposals"] == VERIFIERS * REQUESTS * (STEPS + 1)
    assert counts["engine"]["forwards"] < counts["engine"]["proposals"], "proposals share forwards"
