"""The reference verifier with `sidedraft serve` in a process of its own."""

from __future__ import annotations

import json
import signal
from collections.abc import Hashable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from sidedraft.cli.main import main
from sidedraft.drafts import load_draft, read_config
from sidedraft.integrations.transformers.connect import connect
from sidedraft.integrations.transformers.loop import generate
from sidedraft.integrations.transformers.options import Options
from sidedraft.integrations.transformers.report import Report
from sidedraft.integrations.transformers.request import Request
from sidedraft.settings import VerifierSettings
from sidedraft.targets.tapped import TappedTarget
from sidedraft.verifier.drafter import Drafter
from sidedraft.verifier.pending import Pending
from sidedraft.verifier.submission import Draft, Submission
from support.agreeing import MAX_DEPTH, TAPS, agreeing_pair
from support.dense_context import DenseContext
from support.serve_process import ServeProcess, wait_for

pytestmark = pytest.mark.slow

CONTEXT = 160
"""Positions the draft serves."""
PROMPTS = [[5, 9, 11], [int(token) for token in range(3, 43)], [7] * 17, [50, 2, 60, 80, 33], [96]]
PATIENT = VerifierSettings(deadline=20.0)
"""On a busy machine a proposal may take long; what lateness does is tested elsewhere."""


@dataclass
class Pair:
    target_dir: Path
    draft_dir: Path
    target: TappedTarget

    def arguments(self, address: str) -> list[str]:
        return [
            *("--draft", str(self.draft_dir), "--target", str(self.target_dir), "--bind", address),
            *("--http", "127.0.0.1:0", "--kv-memory", "4MiB", "--threads", "1", "--skip-smoke-test"),
        ]

    def connect(self, address: str, settings: VerifierSettings = PATIENT) -> Drafter:
        return connect(address, self.target, self.target_dir, read_config(self.draft_dir), settings=settings)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    torch.set_num_threads(1)
    target, draft = agreeing_pair(tmp_path_factory.mktemp("models"), max_position=CONTEXT)
    return Pair(target, draft, TappedTarget.load(target, TAPS))


@pytest.fixture(scope="module")
def address(pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    address = f"ipc://{folder}/s"
    with ServeProcess(folder, pair.arguments(address)) as server:
        server.wait_ready()
        yield address


@pytest.fixture
def drafter(pair: Pair, address: str) -> Iterator[Drafter]:
    with pair.connect(address) as drafter:
        assert drafter.wait_connected(20)
        yield drafter


def outputs(report: Report) -> list[list[int]]:
    return [one.tokens for one in report.generations]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_ragged_batch_reads_the_same_with_drafts_and_without(
    pair: Pair, drafter: Drafter, temperature: float
) -> None:
    options = Options(max_new_tokens=30, depth=MAX_DEPTH, temperature=temperature, batch=3, chunk=16)
    plain = generate(pair.target, PROMPTS, options)
    drafted = generate(pair.target, PROMPTS, options, drafter)
    assert outputs(drafted) == outputs(plain)
    assert not drafted.no_draft
    assert 1.2 < drafted.acceptance_length < 4.5  # both kinds were there: accepted and rejected drafts
    assert {"context_d2h", "serialize", "rpc_roundtrip", "server_propose", "client_total"} <= set(
        drafted.stages.samples
    )


class Listening:
    """A drafter that keeps every draft with the request's tokens up to its anchor."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self.heard: list[tuple[list[int], Draft]] = []

    def submit(self, submissions: Sequence[Submission]) -> Pending:
        pending = self._drafter.submit(submissions)
        for request, outcome in pending.result().items():
            if isinstance(outcome, Draft) and isinstance(request, Request):
                self.heard.append((list(request.tokens), outcome))
        return pending

    def release(self, requests: Sequence[Hashable]) -> None:
        self._drafter.release(requests)


def tapped_states(target: TappedTarget, tokens: list[int], taps: Sequence[int]) -> Tensor:
    """[len(tokens), len(taps) x Ht]: inputs of decoder layers, read by hooks of this test's own."""
    seen: dict[int, Tensor] = {}
    layers = target.model.base_model.layers
    hooks = [
        layers[tap - 1].register_forward_hook(
            lambda module, args, output, tap=tap: seen.update(
                {tap: output[0] if isinstance(output, tuple) else output}
            )
        )
        for tap in taps
    ]
    with torch.no_grad():
        target.model(torch.tensor([tokens]))
    for hook in hooks:
        hook.remove()
    return torch.cat([seen[tap].reshape(len(tokens), -1) for tap in taps], -1)


def test_every_proposal_is_what_the_draft_makes_of_the_right_taps(pair: Pair, drafter: Drafter) -> None:
    listening = Listening(drafter)
    generate(pair.target, PROMPTS, Options(max_new_tokens=12, depth=3, batch=5), listening)
    draft = load_draft(pair.draft_dir, pair.target_dir)

    def again(tokens: list[int], taps: Sequence[int], depth: int) -> tuple[list[int], np.ndarray]:
        anchor = torch.tensor([len(tokens) - 1])
        positions = torch.arange(len(tokens) - 1)
        rows = draft.context_rows(tapped_states(pair.target, tokens[:-1], taps), positions)
        context = DenseContext(draft.shape, [rows], [positions], anchor, draft.shape.query_rows(depth))
        proposal = draft.propose(torch.tensor(tokens[-1:]), anchor, depth, context)
        assert proposal.confidence is not None
        return proposal.tokens[0].tolist(), proposal.confidence[0].numpy()

    assert len(listening.heard) > 20
    for tokens, outcome in listening.heard:
        depth = len(outcome.tokens)
        assert (outcome.context_start, outcome.rows_present) == (0, len(tokens) - 1)
        same, confidence = again(tokens, TAPS, depth)
        assert outcome.tokens.tolist() == same
        np.testing.assert_allclose(outcome.confidence, confidence, atol=2e-4)
        # Tokens may survive a wrong tap; confidences tell even neighbouring layers apart.
        _, elsewhere = again(tokens, [2, 4, 5], depth)
        assert np.abs(confidence - elsewhere).max() > 5e-3


def test_a_prompt_longer_than_the_drafts_context_goes_on_without_drafts(pair: Pair, drafter: Drafter) -> None:
    prompts = [[3] * (CONTEXT + 20), [5, 9, 11], [4] * (CONTEXT - 8)]
    options = Options(max_new_tokens=20, depth=MAX_DEPTH)
    report = generate(pair.target, prompts, options, drafter)
    assert outputs(report) == outputs(generate(pair.target, prompts, options))
    beyond, short, crossing = report.generations
    assert sum(beyond.drafted) == 0
    assert sum(short.drafted) > 0
    assert sum(crossing.drafted) > 0
    assert set(report.no_draft) == {"beyond"}


def test_without_a_server_the_run_is_the_plain_one(pair: Pair, tmp_path: Path) -> None:
    options = Options(max_new_tokens=10, depth=MAX_DEPTH)
    with pair.connect(f"ipc://{tmp_path}/nobody") as drafter:
        report = generate(pair.target, PROMPTS, options, drafter)
    assert outputs(report) == outputs(generate(pair.target, PROMPTS, options))
    assert set(report.no_draft) == {"open"}  # nobody waited


def test_a_killed_server_is_missed_and_its_successor_used(pair: Pair, tmp_path: Path) -> None:
    address = f"ipc://{tmp_path}/s"
    options = Options(max_new_tokens=60, depth=MAX_DEPTH, batch=5)
    steps = 0
    with (
        ExitStack() as servers,
        pair.connect(address, VerifierSettings(deadline=2.0)) as drafter,
    ):

        def start() -> ServeProcess:
            server = servers.enter_context(ServeProcess(tmp_path, pair.arguments(address)))
            server.wait_ready()
            assert drafter.wait_connected(30)
            return server

        def meddle(_: Report) -> None:
            nonlocal steps
            steps += 1
            if steps == 5:
                first.process.send_signal(signal.SIGKILL)
                first.process.wait()
            if steps == 12:
                start()
            if steps > 12:  # a busy machine may run few steps while the server catches up
                wait_for(lambda: drafter.status().behind == 0)

        first = start()
        report = generate(pair.target, PROMPTS, options, drafter, meddle)
        counters = drafter.status().counters
    assert outputs(report) == outputs(generate(pair.target, PROMPTS, options))
    assert counters["sessions"] == 2
    assert counters["reopened"] == len(PROMPTS)
    for one in report.generations:
        assert min(one.drafted[:3]) > 0  # drafts, then none, then drafts again
        assert max(one.drafted[6:11]) == 0
        assert max(one.drafted[12:]) == MAX_DEPTH


def test_the_command_prints_what_the_loop_reports(
    pair: Pair, address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text("".join(json.dumps({"ids": prompt}) + "\n" for prompt in PROMPTS))
    common = ["generate", "--target", str(pair.target_dir), "--prompts", str(file), "--json", "--ignore-eos"]
    common += ["--max-new-tokens", "8"]
    remote = ["--connect", address, "--draft", str(pair.draft_dir), "--depth", "3", "--deadline", "20"]
    found = []
    for words in (common, common + remote):
        assert main(words) == 0
        found.append(json.loads(capsys.readouterr().out))
    plain, drafted = found
    texts = [[one["tokens"] for one in report["generations"]] for report in found]
    assert texts[0] == texts[1] == outputs(generate(pair.target, PROMPTS, Options(max_new_tokens=8)))
    assert plain["acceptance_length"] == 0
    assert drafted["acceptance_length"] > 1
    assert drafted["server"]["connected"]
    assert max(max(one["drafted"]) for one in drafted["generations"]) == 3
