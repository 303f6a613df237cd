"""Drafts change no output, leave no request and no cached prefix behind, however vLLM is run."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest

from support.agreeing import MAX_DEPTH, TAPS, agreeing_pair
from support.checkpoints import tiny_draft
from support.serve_process import ServeProcess
from support.vllm_harness import ROOT, Engine, Generation, Layout, Request, needs_vllm, smollm2, started
from support.vllm_matrix import (
    ENGINE,
    Row,
    Scenario,
    Way,
    check,
    complete,
    full,
    letters,
    missing_pairs,
    pairwise,
    requests,
)

DRAFTED = "vllm:spec_decode_num_draft_tokens"
ACCEPTED = "vllm:spec_decode_num_accepted_tokens"
PREEMPTED = "vllm:num_preemptions"


def test_in_the_short_form_every_two_levels_meet() -> None:
    rows = pairwise()
    assert missing_pairs(rows) == set()
    assert len(rows) <= 24
    assert len({row.way for row in rows}) == 8
    assert missing_pairs(rows[1:]), "a row more than needed, or nothing is counted"
    assert len(set(full())) == 4 * 2 * 2 * 5


@dataclass
class World:
    """The models, a draft server of each family, and what the target says by itself."""

    target: Path
    agreeing: tuple[str, ...]
    """Families whose draft is often right after prompts of random tokens: made so, not trained."""
    servers: dict[str, ServeProcess]
    addresses: dict[str, str]
    configs: dict[str, Path]
    expected: dict[Scenario, list[Generation]] = field(default_factory=dict)
    cached: list[int] = field(default_factory=list)
    """Prompt tokens that the target's own cache holds when the long prompts come again."""

    def active(self, family: str) -> int:
        """Requests that the server holds, in its sessions and in its engine."""
        status = self.servers[family].get("/v1/status")[1]
        return sum(one["requests"] for one in status["sessions"]) + int(
            status["counts"]["engine"]["requests"]
        )

    def restored(self, family: str) -> int:
        """Rows found in the server's index."""
        return int(self.servers[family].get("/v1/status")[1]["counts"]["engine"]["rows_restored"])


def tiny(folder: Path) -> tuple[Path, dict[str, Path]]:
    """A target that two ranks can share; the dspark draft agrees with it often, the dflash one by chance."""
    target, dspark = agreeing_pair(folder, hidden=128)
    letters(target, 97)
    dflash = tiny_draft(folder / "dflash", "dflash", target=target, taps=TAPS, max_depth=MAX_DEPTH)
    return target, {"dspark": dspark, "dflash": dflash}


def real(folder: Path) -> tuple[Path, dict[str, Path]]:
    """SmolLM2 with the trained dspark draft, and a dflash draft that agrees by chance."""
    target = smollm2()
    dflash = tiny_draft(folder / "dflash", "dflash", target=target, taps=(1, 15, 29), max_depth=MAX_DEPTH)
    return target, {"dspark": ROOT / "demo" / "draft", "dflash": dflash}


MODELS = {"tiny": tiny, "SmolLM2": real}
AGREEING: dict[str, tuple[str, ...]] = {"tiny": ("dspark",), "SmolLM2": ()}


@pytest.fixture(scope="module")
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("matrix")
    target, drafts = MODELS[request.param](folder)
    with contextlib.ExitStack() as stack:
        found = World(target, AGREEING[request.param], {}, {}, {})
        for family, draft in drafts.items():
            place = folder / f"{family}-server"
            place.mkdir()
            found.configs[family] = place / "config-only"
            found.configs[family].mkdir()
            shutil.copy(draft / "config.json", found.configs[family])
            found.addresses[family] = f"ipc://{folder}/{family}.sock"
            places = ["--draft", str(draft), "--target", str(target), "--bind", found.addresses[family]]
            found.servers[family] = stack.enter_context(
                ServeProcess(place, [*places, "--http", "127.0.0.1:0", "--threads", "1"])
            )
        # All at once, with room for all, which changes no output and saves most of the steps.
        roomy = ENGINE | {"max_num_seqs": 24, "num_gpu_blocks_override": None, "enable_prefix_caching": True}
        with started(Layout.IN_PROCESS, target, engine=roomy) as plain:
            asked = {scenario: complete(requests(scenario)) for scenario in Scenario}
            outputs = iter(plain.generate(list(chain(*asked.values()))))
            found.expected = {scenario: list(islice(outputs, len(asked[scenario]))) for scenario in Scenario}
            found.cached = [one.cached for one in plain.generate(requests(Scenario.CHUNKED))]
        for server in found.servers.values():
            server.wait_ready()
        yield found


@pytest.fixture(scope="module")
def running(request: pytest.FixtureRequest, world: World) -> Iterator[Engine]:
    way: Way = request.param
    speculative = {
        "method": way.family,
        "model": str(world.configs[way.family]),
        "num_speculative_tokens": MAX_DEPTH,
    }
    arguments: dict[str, Any] = {"speculative_config": speculative, "enable_prefix_caching": way.prefix_cache}
    environ = {
        "SIDEDRAFT_ADDRESS": world.addresses[way.family],
        # A busy machine must not open the breaker.
        "SIDEDRAFT_DEADLINE_MS": "20000",
    }
    with started(way.layout, world.target, engine=ENGINE | arguments, environ=environ) as engine:
        warm = [Request([5, 6, 7], {"temperature": 0, "max_tokens": 6, "ignore_eos": True})]
        until_drafts_come(engine, lambda: engine.generate(warm))
        yield engine


def until_drafts_come(engine: Engine, generate: Callable[[], Any]) -> None:
    for _ in range(50):
        generate()
        if engine.metrics().get(DRAFTED, 0):
            return
    raise AssertionError(f"no drafts:\n{engine.log()[-3000:]}")


def params(model: str, rows: list[Row], mark: pytest.MarkDecorator) -> list[Any]:
    """In two groups, for two processes that start an engine once; the first row waits for all of it."""
    return [
        pytest.param(
            model,
            row.way,
            row,
            id=f"{model}, {row.way}, {row.scenario}",
            marks=[
                mark,
                pytest.mark.timeout(900),
                pytest.mark.xdist_group(f"matrix-{row.way.layout in (Layout.IN_PROCESS, Layout.TP2)}"),
            ],
        )
        for row in rows
    ]


@needs_vllm
@pytest.mark.parametrize(
    ("world", "running", "row"),
    params("tiny", pairwise(), pytest.mark.slow),
    indirect=["world", "running"],
    scope="module",
)
def test_a_row_of_the_covering_array(world: World, running: Engine, row: Row) -> None:
    a_row_holds(world, running, row)


# The real target's nine heads are not for two ranks.
TWO_RANKS = [row for row in full() if row.way.layout is Layout.TP2]
OTHERS = [row for row in full() if row.way.layout is not Layout.TP2]


@needs_vllm
@pytest.mark.parametrize(
    ("world", "running", "row"),
    params("SmolLM2", OTHERS, pytest.mark.long) + params("tiny", TWO_RANKS, pytest.mark.long),
    indirect=["world", "running"],
    scope="module",
)
def test_a_row_of_the_full_matrix(world: World, running: Engine, row: Row) -> None:
    a_row_holds(world, running, row)


def a_row_holds(world: World, running: Engine, row: Row) -> None:
    family, asked = row.way.family, requests(row.scenario)
    before = running.metrics()
    found = running.generate(asked)
    check(world.target, asked, world.expected[row.scenario], found)
    after = running.metrics()
    assert after[DRAFTED] > before.get(DRAFTED, 0)
    if family in world.agreeing and row.scenario is not Scenario.STRUCTURED:
        assert after[ACCEPTED] > before.get(ACCEPTED, 0)
    if row.scenario is Scenario.PREEMPTION:
        assert after[PREEMPTED] > before.get(PREEMPTED, 0)
    world.servers[family].wait_for(lambda: world.active(family) == 0)
    if row.scenario is Scenario.CHUNKED:
        a_prefix_comes_back(world, running, row, found)


def a_prefix_comes_back(world: World, running: Engine, row: Row, first: list[Generation]) -> None:
    """The target finds as much as without drafts; the server has the rows that the target does not send."""
    restored = world.restored(row.way.family)
    again = running.generate(requests(row.scenario))
    assert [one.tokens for one in again] == [one.tokens for one in first]
    if row.way.prefix_cache:
        if row.way.layout is not Layout.SERVER:  # whose answers do not say
            assert [one.cached for one in again] == world.cached
        assert world.restored(row.way.family) - restored >= sum(world.cached) > 0
    else:
        assert [one.cached for one in again] == [0] * len(again)
    world.servers[row.way.family].wait_for(lambda: world.active(row.way.family) == 0)
