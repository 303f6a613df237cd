"""Whatever a request asks of sampling, with drafts it gets what it gets without."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from support.agreeing import MAX_DEPTH, agreeing_pair
from support.checkpoints import write_checkpoint
from support.serve_process import ServeProcess
from support.vllm_harness import Engine, Generation, Layout, Request, needs_vllm, started
from support.vllm_matrix import ENGINE, letters

pytestmark = [
    needs_vllm,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("vllm-behaviours"),
]

VOCAB = 97
DRAFTED = "vllm:spec_decode_num_draft_tokens"
SURE = 1e4
"""A bias that no logit outweighs."""


def token(letter: str) -> int:
    """As `letters` counts them."""
    return ord(letter) - 32 + 3


def prompt(index: int, length: int = 14) -> list[int]:
    return [3 + (31 * index + 7 * at + at * at) % 90 for at in range(length)]


def asked(**params: Any) -> list[Request]:
    """Three requests with the same parameters."""
    common = {"temperature": 0, "max_tokens": 16, "ignore_eos": True}
    return [Request(prompt(index), common | params) for index in range(3)]


def grammar(pattern: str) -> list[Request]:
    return asked(structured_outputs={"regex": pattern}, ignore_eos=False, max_tokens=24)


CASES: dict[str, list[Request]] = {
    "plain": asked(),
    "presence and frequency penalty": asked(presence_penalty=1.5, frequency_penalty=1.0),
    "repetition penalty": asked(repetition_penalty=1.8),
    "penalties of some": [asked(frequency_penalty=1.9)[0], asked()[1], asked(presence_penalty=-1.0)[2]],
    "bad words": asked(bad_words=["e", "t", "A"]),
    "one token": asked(max_tokens=1),
    "two tokens": asked(max_tokens=2),
    "different lengths": [asked(max_tokens=count)[at] for at, count in enumerate((1, 16, 3))],
    "at least some tokens": asked(min_tokens=6, ignore_eos=False),
    "drafts that are never legal": grammar("[0-9]{10}"),
    "drafts that are legal beyond the grammar's end": grammar("a{6}"),
    "drafts that are legal beyond some end of the grammar": grammar("a{2,9}"),
    "a grammar for some": [grammar("a{6}")[0], asked()[1], grammar("[0-9]{3}a{5}")[2]],
}
"""Greedy or as good as: the tokens are the same."""


class Models:
    """A target, and a draft that says `a` after `a`, never a digit after a digit, and else mostly agrees."""

    def __init__(self, folder: Path) -> None:
        self.target, self.draft = agreeing_pair(folder, hidden=128)
        letters(self.target, VOCAB)
        weights = load_file(self.draft / "model.safetensors")
        head: torch.Tensor = weights["markov_head.markov_w2.weight"].clone()
        head[token("a"), token("a")] = SURE
        for digit in "0123456789":
            head[token("|"), token(digit)] = SURE
        weights["markov_head.markov_w2.weight"] = head
        write_checkpoint(self.draft, json.loads((self.draft / "config.json").read_text()), weights)
        self.config = folder / "config-only"
        self.config.mkdir()
        shutil.copy(self.draft / "config.json", self.config)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("behaviours"))


STOPPING = 6
"""Where the plain output is stopped: its letters from here on."""


def stopping(plain: list[Generation]) -> dict[str, list[Request]]:
    """Ends that the output itself decides: a word in the midst of it, and a token."""
    words = [one.text[STOPPING : STOPPING + 2] for one in plain]
    return {
        "a stop string": [asked(stop=[word])[at] for at, word in enumerate(words)],
        "a stop string that is shown": [
            asked(stop=[word], include_stop_str_in_output=True)[at] for at, word in enumerate(words)
        ],
        "a stop token": [
            asked(stop_token_ids=[one.tokens[STOPPING]], ignore_eos=False)[at] for at, one in enumerate(plain)
        ],
    }


ROOMY = ENGINE | {
    "max_num_seqs": 32,
    "max_num_batched_tokens": 512,
    "num_gpu_blocks_override": None,
    "enable_prefix_caching": False,
}


def run(engine: Engine, cases: dict[str, list[Request]]) -> dict[str, list[Generation]]:
    """All cases at once, so that each runs beside others."""
    outputs = iter(engine.generate(list(chain(*cases.values()))))
    return {name: list(islice(outputs, len(requests))) for name, requests in cases.items()}


class Runs:
    """The cases, and what each gave without drafts."""

    def __init__(self, plain: Engine) -> None:
        first = {**CASES, "logprobs": asked(logprobs=3, max_tokens=10)}
        self.expected = run(plain, first)
        ends = stopping(self.expected["plain"])
        self.expected |= run(plain, ends)
        self.cases = first | ends


@pytest.fixture(scope="module")
def runs(models: Models) -> Runs:
    with started(Layout.IN_PROCESS, models.target, engine=ROOMY) as plain:
        return Runs(plain)


@pytest.fixture(scope="module")
def drafted(models: Models, runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    folder = tmp_path_factory.mktemp("server")
    address = f"ipc://{folder}/draft.sock"
    places = ["--draft", str(models.draft), "--target", str(models.target), "--bind", address]
    speculative = {"method": "dspark", "model": str(models.config), "num_speculative_tokens": MAX_DEPTH}
    environ = {"SIDEDRAFT_ADDRESS": address, "SIDEDRAFT_DEADLINE_MS": "20000"}
    with ServeProcess(folder, [*places, "--http", "127.0.0.1:0", "--threads", "1"]) as server:
        server.wait_ready()
        engine = ROOMY | {"speculative_config": speculative}
        with started(Layout.IN_PROCESS, models.target, engine=engine, environ=environ) as running:
            for _ in range(50):
                running.generate(asked(max_tokens=4))
                if running.metrics()[DRAFTED]:
                    break
            yield running
            server.wait_for(
                lambda: not any(one["requests"] for one in server.get("/v1/status")[1]["sessions"])
            )


@pytest.fixture(scope="module")
def found(runs: Runs, drafted: Engine) -> dict[str, list[Generation]]:
    """What each case gave with drafts."""
    return run(drafted, runs.cases)


@pytest.mark.parametrize("name", [*CASES, *stopping([])])
def test_the_output_is_what_it_is_without_drafts(
    runs: Runs, found: dict[str, list[Generation]], name: str
) -> None:
    for reference, output in zip(runs.expected[name], found[name], strict=True):
        assert output == replace(reference, steps=output.steps)


def test_where_one_token_is_all_that_may_come_none_is_drafted_nor_filled_in(drafted: Engine) -> None:
    before = drafted.metrics()[DRAFTED]
    drafted.generate(CASES["one token"])
    assert drafted.metrics()[DRAFTED] == before
    drafted.generate(CASES["plain"])
    assert drafted.metrics()[DRAFTED] > before


def test_illegal_drafts_are_never_taken_and_legal_ones_are(found: dict[str, list[Generation]]) -> None:
    never = found["drafts that are never legal"][0]
    assert never.steps == [1] * len(never.tokens)
    often = found["drafts that are legal beyond the grammar's end"][0]
    assert often.tokens[:6] == [token("a")] * 6
    assert max(often.steps) > 2


def test_logprobs_are_those_without_drafts(runs: Runs, found: dict[str, list[Generation]]) -> None:
    assert max(step for one in found["logprobs"] for step in one.steps) > 1, "no draft was accepted"
    for reference, output in zip(runs.expected["logprobs"], found["logprobs"], strict=True):
        assert output.tokens == reference.tokens
        for one, other in zip(reference.logprobs, output.logprobs, strict=True):
            assert one == pytest.approx(other, abs=1e-3)


def test_a_seeded_request_is_repeated_whoever_it_runs_beside(drafted: Engine) -> None:
    def sampled(seed: int | None, index: int) -> Request:
        return asked(temperature=0.9, **({} if seed is None else {"seed": seed}))[index]

    alone = [drafted.generate([sampled(seed, index)])[0].tokens for index, seed in enumerate((11, 12))]
    for _ in range(2):
        mixed = drafted.generate([sampled(11, 0), sampled(None, 2), sampled(12, 1), asked()[2]])
        assert [mixed[0].tokens, mixed[2].tokens] == alone
    assert drafted.generate([sampled(13, 0)])[0].tokens != alone[0]
