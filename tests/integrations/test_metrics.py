"""Both ends in one scrape: the reference verifier's own account against what the server exports of it."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from prometheus_client.parser import text_string_to_metric_families

from sidedraft.drafts import read_config
from sidedraft.integrations.transformers.connect import connect
from sidedraft.integrations.transformers.loop import generate
from sidedraft.integrations.transformers.options import Options
from sidedraft.settings import VerifierSettings
from sidedraft.targets.tapped import TappedTarget
from support.agreeing import MAX_DEPTH, TAPS, agreeing_pair
from support.serve_process import wait_for
from support.server_run import ServerRun

pytestmark = pytest.mark.slow

PROMPTS = [[5, 9, 11], list(range(3, 43)), [7] * 18]
"""None a chunk and one token long: such a prompt's last token has a draft behind it, which the verifier's own
account leaves to the prompt."""
LABEL = 'verifier="transformers"'


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("m")
    agreeing_pair(folder, max_position=160)
    return folder


@pytest.fixture
def server(folder: Path) -> Iterator[ServerRun]:
    server = ServerRun(folder)
    try:
        server.wait_ready()
        yield server
    finally:
        server.server.stop("done")
        server.end()


def scrape(server: ServerRun) -> dict[str, float]:
    """Samples by `name{label="value"}`, over HTTP."""
    address = server.server.parts.board.facts["http"]
    connection = http.client.HTTPConnection(address, timeout=20)
    try:
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
    finally:
        connection.close()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def test_one_scrape_shows_both_ends_and_acceptance_as_the_verifier_had_it(
    folder: Path, server: ServerRun
) -> None:
    target = TappedTarget.load(folder / "target", TAPS)
    draft = read_config(folder / "draft")
    options = Options(max_new_tokens=24, depth=MAX_DEPTH, batch=3, chunk=16)
    settings = VerifierSettings(deadline=20.0)
    with connect(server.address, target, folder / "target", draft, settings=settings) as drafter:
        assert drafter.wait_connected(20)
        report = generate(target, PROMPTS, options, drafter)
        drafted = [count for one in report.generations for count in one.drafted if count]
        accepted = [
            taken
            for one in report.generations
            for count, taken in zip(one.drafted, one.accepted, strict=True)
            if count
        ]
        assert 0 < sum(accepted) < sum(drafted)

        def settled() -> bool:
            """A report after the last step has come, and everything sent has arrived."""
            found, counts = scrape(server), drafter.status().counters
            return (
                found.get(f"sidedraft_verifier_steps_total{{{LABEL}}}") == counts["steps"]
                and found[f"sidedraft_verifier_rows_sent_total{{{LABEL}}}"] == counts["rows_sent"]
                and found["sidedraft_engine_received_rows_total"] == counts["rows_sent"]
            )

        wait_for(settled)
        found = scrape(server)
        assert drafter.status().acceptance_length == pytest.approx(report.acceptance_length)
    assert found[f"sidedraft_verifier_accepted_tokens_count{{{LABEL}}}"] == len(drafted)
    assert found[f"sidedraft_verifier_accepted_tokens_sum{{{LABEL}}}"] == sum(accepted)
    for position in range(MAX_DEPTH):
        at = f'{{position="{position}",{LABEL}}}'
        assert found[f"sidedraft_verifier_draft_tokens_per_pos_total{at}"] == sum(
            d > position for d in drafted
        )
        assert found[f"sidedraft_verifier_accepted_tokens_per_pos_total{at}"] == sum(
            a > position for a in accepted
        )
    assert found[f"sidedraft_verifier_late_total{{{LABEL}}}"] == 0
    assert found["sidedraft_engine_proposals_total"] == found[f"sidedraft_verifier_drafted_total{{{LABEL}}}"]
    steps = found[f'sidedraft_verifier_stage_seconds_count{{stage="client_total",{LABEL}}}']
    assert 0 < steps <= found[f"sidedraft_verifier_steps_total{{{LABEL}}}"]
    for stage in ("request_plan", "context_d2h", "serialize", "rpc_roundtrip", "server_total"):
        assert found[f'sidedraft_verifier_stage_seconds_count{{stage="{stage}",{LABEL}}}'] == steps
    assert found['sidedraft_server_stage_seconds_count{stage="server_propose"}'] > 0
    wait_for(lambda: not any("verifier=" in key for key in scrape(server)))
