"""The speculator inside a real vLLM, with a real server: faults with two ranks, and the scheduler's depth."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.checkpoints import tiny_draft, tiny_target
from support.serve_process import ServeProcess
from support.vllm_faults import OURS, STEPS
from support.vllm_harness import Engine, Layout, Request, needs_vllm, started

pytestmark = [needs_vllm, pytest.mark.slow]

DEPTH = 4
DRAFTED = "vllm:spec_decode_num_draft_tokens"


@dataclass
class Models:
    """A target that two ranks can share, a draft for it, and the draft folder of the verifier's side."""

    target: Path
    draft: Path
    config: Path


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    folder = tmp_path_factory.mktemp("models")
    target = tiny_target(folder / "target", hidden=128)
    draft = tiny_draft(folder / "draft", "dspark", target=target, max_depth=DEPTH)
    (folder / "config").mkdir()
    shutil.copy(draft / "config.json", folder / "config")
    return Models(target, draft, folder / "config")


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/draft.sock"


def serve(models: Models, folder: Path, address: str) -> ServeProcess:
    folder.mkdir()
    places = ["--draft", str(models.draft), "--target", str(models.target)]
    return ServeProcess(folder, [*places, "--bind", address, "--http", "127.0.0.1:0", "--threads", "1"])


def engine(models: Models, layout: Layout, address: str, *patches: str) -> Any:
    speculative = {"method": "dspark", "model": str(models.config), "num_speculative_tokens": DEPTH}
    return started(
        layout,
        models.target,
        engine={"speculative_config": speculative},
        environ={
            "SIDEDRAFT_ADDRESS": address,
            # A busy machine must not open the breaker.
            "SIDEDRAFT_DEADLINE_MS": "20000",
            "VLLM_ALLOW_INSECURE_SERIALIZATION": "1",
        },
        patches=("greedy", *patches),
    )


def requests(tokens: int) -> list[Request]:
    """Four of different lengths, which the target continues greedily."""
    params = {"temperature": 0, "max_tokens": tokens, "ignore_eos": True}
    return [Request([(7 * at + 3 * one) % 90 + 4 for at in range(30 + 20 * one)], params) for one in range(4)]


def cached(running: Engine) -> list[int]:
    """Tokens of the requests' prompts that are found in the target's prefix cache."""
    return [one.cached for one in running.generate(requests(1))]


def tokens_of(running: Engine, count: int) -> list[list[int]]:
    found = running.generate(requests(count))
    assert [len(one.tokens) for one in found] == [count] * 4
    return [one.tokens for one in found]


def open_requests(server: ServeProcess) -> int:
    return sum(session["requests"] for session in server.get("/v1/status")[1]["sessions"])


def test_a_fault_at_any_step_of_the_talk_stops_no_rank_and_changes_no_token(
    models: Models, tmp_path: Path, address: str
) -> None:
    with serve(models, tmp_path / "server", address) as server:
        server.wait_ready()
        with engine(models, Layout.TP2, address) as running:
            expected = tokens_of(running, 12)
            for place in STEPS:
                # What follows a fault is only reached by one.
                first = [] if place in STEPS[:-2] else [OURS + "talker:Talker._deliver"]
                assert running.call("support.vllm_faults:put", places=[*first, place], times=3) == [
                    True,
                    False,
                ]
                assert tokens_of(running, 12) == expected, place
            before = running.metrics()[DRAFTED]
            assert tokens_of(running, 12) == expected
            assert running.metrics()[DRAFTED] > before
            raised = running.call("support.vllm_faults:raised")
            assert all(raised[place] >= 3 for place in STEPS), raised
            server.wait_for(lambda: open_requests(server) == 0)


@pytest.mark.parametrize(
    "patches", [(), pytest.param(("async",), marks=pytest.mark.long)], ids=["synchronous", "asynchronous"]
)
def test_the_scheduler_drafts_while_a_server_is_there_and_only_then(
    models: Models, tmp_path: Path, address: str, patches: tuple[str, ...]
) -> None:
    with engine(models, Layout.MULTI_PROCESS, address, *patches) as running:
        expected = tokens_of(running, 24)
        assert running.metrics()[DRAFTED] == 0, "fillers were verified"
        # Whole blocks, less the last token, as without speculation.
        assert cached(running) == [(len(one.prompt) - 1) // 32 * 32 for one in requests(1)]
        with serve(models, tmp_path / "server", address) as server:
            server.wait_ready()
            while running.metrics()[DRAFTED] == 0:
                assert tokens_of(running, 24) == expected
            drafted = running.metrics()[DRAFTED]
            assert tokens_of(running, 24) == expected
            assert running.metrics()[DRAFTED] - drafted > 20 * DEPTH
            server.process.kill()
            server.process.wait()
        drafted = running.metrics()[DRAFTED]
        assert tokens_of(running, 24) == expected
        # Scheduled before the word said so, of four requests each.
        assert running.metrics()[DRAFTED] - drafted <= 2 * 4 * DEPTH
