"""What a drafter counts of itself, and what of it reaches the server."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import torch

from sidedraft.transport.fake import Direction, delayed
from sidedraft.verifier.drafter import Drafter
from sidedraft.verifier.state.counters import Counters
from sidedraft.verifier.state.figures import INTERVAL
from sidedraft.verifier.state.outcome import Draft, NoDraft, Reason
from sidedraft.verifier.state.step import Times
from sidedraft.wire.figures import COUNTS, STAGES
from support.ladder_world import IMPATIENT, MAX_DEPTH, Request, World, facts


def world(**options: object) -> tuple[World, Request]:
    """Connected, with one request that has a draft."""
    w = World(settings=IMPATIENT, **options)  # type: ignore[arg-type]
    w.connect()
    request = w.start()
    assert isinstance(w.take(w.submit())[request.name], Draft)
    return w, request


def follow(w: World, request: Request, count: int) -> None:
    """A step of a target that accepts so many tokens of the draft it has."""
    w.sleep(0.03)
    request.tokens += [request.anchor, *request.draft[:count]]
    request.anchor = (request.anchor + 1) % 97
    request.draft = []
    w.take(w.submit())


def acceptance(w: World) -> tuple[list[int], list[int]]:
    found = w.session.figures.acceptance
    return found.drafted, found.accepted


def test_every_counter_and_stage_has_a_name_on_the_wire() -> None:
    assert {field.name for field in dataclasses.fields(Counters)} == set(COUNTS)
    times = {field.name for field in dataclasses.fields(Times)}
    assert times | {"metadata_d2h", "context_gather", "tokens_h2d"} == set(STAGES)


def test_acceptance_is_what_the_target_did() -> None:
    w, request = world()
    for count in (4, 0, 2):
        follow(w, request, count)
    assert acceptance(w) == ([3] * 4, [2, 2, 1, 1])
    assert w.session.figures.acceptance.length == 1 + 6 / 3


def test_a_late_draft_is_not_judged() -> None:
    w, request = world()
    w.channel.links[next(iter(w.channel.links))[0], Direction.DOWN].script.append(delayed(0.05))
    follow(w, request, 4)
    late = w.outcomes[-1]
    assert isinstance(late, NoDraft)
    assert late.reason is Reason.LATE
    follow(w, request, 0)
    follow(w, request, 0)
    assert acceptance(w)[0][0] == 1
    assert w.counters.late == 1


def test_a_draft_that_the_engine_did_not_take_is_not_judged() -> None:
    w, request = world()
    follow(w, request, 1)
    w.sleep(0.03)
    request.grow()
    w.submit()  # its result stays where it is
    w.sleep(0.03)
    request.grow()
    w.take(w.submit())
    assert acceptance(w)[0][0] == 2


def test_a_rewound_request_says_nothing_of_its_draft() -> None:
    w, request = world()
    request.rewind(3)
    w.take(w.submit())
    assert acceptance(w) == ([], [])


def test_what_a_narrow_tensor_has_no_room_for_was_not_drafted() -> None:
    w, request = world()
    follow(w, request, 3)
    request.tokens.append(request.anchor)
    pending = w.submit()
    tokens, valid = torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 2, dtype=torch.bool)
    pending.write_into(tokens, valid)
    assert valid.all()
    request.draft = tokens[0].tolist()
    follow(w, request, 2)
    assert acceptance(w) == ([3, 3, 2, 2], [2, 2, 1, 0])
    assert w.counters.fillers == 0


def test_fillers_are_counted_once_where_a_draft_was_wanted() -> None:
    w, first = world()
    unasked = w.start()
    w.submit([unasked], depth=0)
    w.server.kill()
    w.sleep(0.1)  # the breaker is open
    pending = w.submit([first])
    for _ in range(2):
        pending.write_into(
            torch.zeros(1, MAX_DEPTH, dtype=torch.int64), torch.zeros(1, MAX_DEPTH, dtype=torch.bool)
        )
    assert w.counters.fillers == MAX_DEPTH
    w.submit([unasked], depth=0).write_into(
        torch.zeros(1, MAX_DEPTH, dtype=torch.int64), torch.zeros(1, MAX_DEPTH, dtype=torch.bool)
    )
    assert w.counters.fillers == MAX_DEPTH


def test_the_stages_of_a_step_are_counted_when_its_result_is_taken() -> None:
    w, request = world()
    stages = w.session.figures.stages.histograms
    assert sum(stages["client_total"].counts) == 1
    assert stages["client_total"].total == pytest.approx(4000, abs=2)  # the model server's service time
    pending = w.submit([request], depth=0)
    pending.result()
    assert sum(stages["client_total"].counts) == 1  # nobody waited for anything


def test_rows_travel_as_bytes_of_their_own_kind() -> None:
    w, _ = world()
    assert w.counters.bytes_rows == w.counters.rows_sent * w.session.agreement.row_bytes > 0
    assert w.counters.bytes_control + w.counters.bytes_bulk > w.counters.bytes_rows


def test_a_report_comes_with_a_heartbeat_once_an_interval_and_carries_totals() -> None:
    w, request = world()
    w.sleep(10 * INTERVAL)
    assert len(w.server.reports) in (9, 10, 11)
    assert len(w.server.reports) < w.counters.heartbeats / 4
    for _ in range(3):
        follow(w, request, 2)
    w.sleep(1.5 * INTERVAL)
    report = w.server.reports[-1]
    assert (report.breaker, report.requests, report.behind) == ("closed", 1, 0)
    assert report.deadline_us == 20_000
    assert report.counts | {"heartbeats": 0} == dataclasses.asdict(w.counters) | {"heartbeats": 0}
    assert (report.drafted, report.accepted) == ((3,) * 4, (3, 3, 0, 0))
    assert sum(report.stages["client_total"].counts) == 4
    assert "metadata_d2h" not in report.stages


def test_totals_survive_the_session_and_the_server() -> None:
    w, request = world()
    follow(w, request, 2)
    w.server.kill()
    w.sleep(0.1)
    w.server.start()
    w.connect()
    w.sleep(0.5)
    report = w.server.reports[-1]
    assert report.epoch == w.server.epoch
    assert report.counts["sessions"] == 2
    assert report.drafted[0] == 1


def test_a_server_of_minor_0_gets_none() -> None:
    w = World()
    w.server.minors = (0, 0)
    w.connect()
    w.start()
    w.take(w.submit())
    w.sleep(3 * INTERVAL)
    assert w.session.agreement.minor == 0
    assert w.server.reports == []
    assert w.counters.heartbeats > 5
    assert w.server.confused == []


def test_an_engine_adds_what_only_it_can_see(tmp_path: Path) -> None:
    with Drafter(f"ipc://{tmp_path}/nobody.sock", facts()) as drafter:
        drafter.observe("context_gather", 0.002)
        drafter.count_fillers(5)
        with pytest.raises(ValueError, match="stage: 'coffee' is not allowed"):
            drafter.observe("coffee", 1.0)
        status = drafter.status()
        assert (status.counters["fillers"], status.acceptance_length) == (5, None)


def test_nothing_of_a_request_is_in_a_report() -> None:
    w, request = world()
    w.sleep(1.5 * INTERVAL)
    words = re.findall(r"'([^']*)'", repr(w.server.reports[-1]))
    assert set(words) <= {*COUNTS, *STAGES, "closed"}
    assert request.name == 0  # an id, which no field above is
