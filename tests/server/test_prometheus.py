"""What is scraped: the server's own figures, and its verifiers' for as long as they are there."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sidedraft.engine.stats import EngineCounters, EngineStats
from sidedraft.metrics import snapshot
from sidedraft.server.counters import IoCounters
from sidedraft.server.prometheus import (
    BLOCK_STATES,
    ENGINE_COUNTERS,
    ENGINE_GAUGES,
    IO_COUNTERS,
)
from sidedraft.wire import messages as m
from support.engine_client import text
from support.metrics_scene import Scene, stage
from support.wire_peer import make_advance

WIDTH = 4


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_a_loading_server_can_be_scraped() -> None:
    found = Scene(loaded=False).scrape()
    assert found["sidedraft_server_ready"] == 0
    assert found['sidedraft_server_phase{phase="loading"}'] == 1
    assert found["sidedraft_server_sessions"] == 0


def test_a_proposal_leaves_its_traces(scene: Scene) -> None:
    peer = scene.bench.peer()
    peer.advance(make_advance(1, 0, 0, text(20), width=WIDTH, depth=2))
    peer.answers(1)
    found = scene.scrape()
    assert found["sidedraft_server_ready"] == 1
    assert found["sidedraft_engine_proposals_total"] == 1
    assert found["sidedraft_engine_received_rows_total"] == 20
    assert found["sidedraft_engine_requests"] == 1
    assert found['sidedraft_engine_blocks{state="held"}'] == 2
    for name in ("server_queue", "server_ingest", "server_propose", "server_total"):
        assert found[f'sidedraft_server_stage_seconds_count{{stage="{name}"}}'] == 1
    assert (
        sum(found[f'sidedraft_engine_blocks{{state="{state}"}}'] for state in BLOCK_STATES)
        == (found["sidedraft_engine_pool_blocks"])
    )


def test_an_ingest_alone_is_no_proposal_of_which_stages_could_tell(scene: Scene) -> None:
    peer = scene.bench.peer()
    peer.advance(make_advance(1, 0, 0, text(20), width=WIDTH))
    peer.answers(1)
    assert scene.scrape()['sidedraft_server_stage_seconds_count{stage="server_total"}'] == 0


def test_a_prefix_that_is_found_is_an_index_hit(scene: Scene) -> None:
    peer = scene.bench.peer()
    for request in (1, 2):
        peer.advance(make_advance(request, 0, 0, text(33), width=WIDTH, depth=1))
        peer.answers(1)
    assert scene.scrape()["sidedraft_engine_index_hit_rows_total"] == 32


def test_every_figure_of_the_server_is_exported() -> None:
    assert set(snapshot(IoCounters())) == set(IO_COUNTERS)
    fields = {field.name for kind in (EngineStats, EngineCounters) for field in dataclasses.fields(kind)}
    shown = {*ENGINE_COUNTERS, *ENGINE_GAUGES, *(f"blocks_{state}" for state in BLOCK_STATES)}
    assert fields - {"counters"} == shown - {"queued", "errors", "slices", "most_waited"}


def test_a_report_is_exported_with_the_verifiers_label_until_its_session_ends(scene: Scene) -> None:
    peer = scene.bench.peer()
    assert not any("verifier" in key for key in scene.scrape())
    scene.report(peer)
    found = scene.scrape()
    assert found['sidedraft_verifier_late_total{verifier="test"}'] == 7
    assert found['sidedraft_verifier_breaker{state="closed",verifier="test"}'] == 1
    assert found['sidedraft_verifier_breaker{state="open",verifier="test"}'] == 0
    assert found['sidedraft_verifier_deadline_seconds{verifier="test"}'] == 0.04
    assert found['sidedraft_verifier_sent_bytes_total{kind="rows",verifier="test"}'] == 10
    assert found['sidedraft_verifier_sent_bytes_total{kind="tokens",verifier="test"}'] == 4
    assert found['sidedraft_verifier_connection_bytes_total{connection="bulk",verifier="test"}'] == 7
    assert found['sidedraft_verifier_stage_seconds_count{stage="client_total",verifier="test"}'] == 4
    assert found['sidedraft_verifier_stage_seconds_sum{stage="client_total",verifier="test"}'] == 0.001
    scene.report(peer, breaker="open", counts={"late": 9})
    found = scene.scrape()
    assert found['sidedraft_verifier_late_total{verifier="test"}'] == 9
    assert found['sidedraft_verifier_breaker{state="open",verifier="test"}'] == 1
    peer.say(m.Goodbye(**peer.ids))
    scene.bench.turn()
    assert not any("verifier" in key for key in scene.scrape())


def test_acceptance_is_a_histogram_and_a_pair_of_counts_a_position(scene: Scene) -> None:
    peer = scene.bench.peer()
    scene.report(peer, drafted=(10, 10, 8), accepted=(6, 2, 1))
    found = scene.scrape()
    buckets = {
        end: found[f'sidedraft_verifier_accepted_tokens_bucket{{le="{end}",verifier="test"}}']
        for end in ("0.0", "1.0", "2.0", "+Inf")
    }
    # 4 drafts with none, 4 with one, 1 with two and 1 with three tokens accepted.
    assert buckets == {"0.0": 4, "1.0": 8, "2.0": 9, "+Inf": 10}
    assert found['sidedraft_verifier_accepted_tokens_sum{verifier="test"}'] == 9
    assert found['sidedraft_verifier_accepted_tokens_count{verifier="test"}'] == 10
    assert found['sidedraft_verifier_accepted_tokens_per_pos_total{position="2",verifier="test"}'] == 1
    assert found['sidedraft_verifier_draft_tokens_per_pos_total{position="2",verifier="test"}'] == 8


def test_two_verifiers_of_one_name_are_told_apart(scene: Scene) -> None:
    for late in (1, 2):
        scene.report(scene.bench.peer(), counts={"late": late})
    found = scene.scrape()
    assert found['sidedraft_verifier_late_total{verifier="test"}'] == 1
    assert found['sidedraft_verifier_late_total{verifier="test-2"}'] == 2


def test_a_verifier_cannot_make_series_of_its_own(scene: Scene) -> None:
    peer = scene.bench.peer(greet=False)
    peer.greet(scene.bench.hello(verifier='x"} 1\u00e4'))
    many = tuple(range(256, 0, -1))
    scene.report(
        peer,
        breaker="on-fire",
        counts={f"made_up_{i}": i for i in range(60)},
        stages={f"made_up_{i}": stage(1, 50) for i in range(60)},
        drafted=many,
        accepted=many,
    )
    found = {key for key in scene.scrape() if "verifier=" in key}
    assert all('verifier="x_1_"' in key for key in found)
    assert not any("made_up" in key or "on-fire" in key for key in found)
    depth = scene.bench.shape.max_depth
    assert sum("sidedraft_verifier_draft_tokens_per_pos" in key for key in found) == depth


def test_the_status_has_the_report_with_its_stages_summed_up(scene: Scene) -> None:
    peer = scene.bench.peer()
    scene.report(peer, counts={"late": 2, "unknown": 3})
    (session,) = scene.board.status()["sessions"]
    assert session["report"]["counts"] == {"late": 2}
    assert session["report"]["acceptance"] == {
        "judged": 10,
        "length": 1.8,
        "drafted": [10, 10],
        "accepted": [6, 2],
    }
    assert session["report"]["stages_ms"]["client_total"] == {
        "steps": 4,
        "mean": 0.25,
        "p50": 0.35,
        "p99": 0.497,
    }


def test_no_token_row_or_secret_is_scraped(scene: Scene) -> None:
    peer = scene.bench.peer()
    peer.advance(make_advance(987_654_321, 0, 0, text(20), width=WIDTH, depth=2))
    peer.answers(1)
    scene.report(peer)
    exposed = scene.metrics.render("")[0].decode()
    values = set(re.findall(r"[0-9]{5,}", exposed))
    assert "987654321" not in exposed
    assert str(peer.ids["session"]) not in values


def test_the_manual_names_every_metric(scene: Scene) -> None:
    """docs/operations.md lists name, type and labels of exactly what is scraped."""
    peer = scene.bench.peer()
    scene.report(peer)
    manual = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| `(sidedraft_\w+)` \| (\w+) \| ([^|]*) \|", manual, re.MULTILINE)
    documented = {name: (kind, tuple(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    scraped = {}
    for family in text_string_to_metric_families(scene.metrics.render("")[0].decode()):
        if family.name.startswith("sidedraft_"):
            labels = [name for name in family.samples[0].labels if name != "le"]
            name = f"{family.name}_total" if family.type == "counter" else family.name
            scraped[name] = (family.type, tuple(labels))
    assert documented == scraped


def test_a_report_of_minor_0_ends_nothing_but_is_refused(scene: Scene) -> None:
    peer = scene.bench.peer(greet=False)
    peer.greet(scene.bench.hello(minors=(0, 0)))
    assert peer.agreement is not None
    report = m.Report(
        **peer.ids,
        breaker="closed",
        requests=0,
        behind=0,
        deadline_us=0,
        counts={},
        stages={},
        drafted=(),
        accepted=(),
    )
    peer.raw([msgspec.msgpack.encode(report)])
    failure = peer.expect(m.Failure)
    assert (failure.code, failure.fatal) == ("malformed", False)
    assert len(scene.bench.dispatcher.sessions) == 1
