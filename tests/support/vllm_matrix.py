"""The ways vLLM is run, as a covering array and in full, and what a row of it asks of an engine.

Rows of the same layout, family and prefix caching share one engine, so the short form admits eight of the
sixteen engines, in which every two of these three factors still meet in every combination.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from allpairspy import AllPairs

from sidedraft.integrations.transformers.compare import judge
from sidedraft.targets.tapped import TappedTarget
from support.vllm_harness import Generation, Layout, Request

FAMILIES = ("dspark", "dflash")
"""The one whose draft agrees with the target first: it meets more."""


class Scenario(StrEnum):
    CHUNKED = "chunked prefill"
    PREEMPTION = "preemption"
    """More tokens than the pool of the target's cache holds."""
    ABORT = "abort mid-stream"
    STRUCTURED = "structured output"
    CONCURRENT = "8 concurrent requests"


@dataclass(frozen=True)
class Way:
    """What an engine is started with."""

    layout: Layout
    family: str
    prefix_cache: bool

    def __str__(self) -> str:
        return f"{self.layout}, {self.family}, prefix cache {'on' if self.prefix_cache else 'off'}"


@dataclass(frozen=True)
class Row:
    """One row of the matrix."""

    way: Way
    scenario: Scenario


LEVELS: tuple[Sequence[Any], ...] = (tuple(Layout), FAMILIES, (True, False), tuple(Scenario))


def full() -> list[Row]:
    """Every combination, rows of one engine together."""
    return [Row(Way(*levels[:3]), levels[3]) for levels in itertools.product(*LEVELS)]


def pairwise() -> list[Row]:
    """Every two levels of different factors meet in some row; rows of one engine together."""
    found = [
        Row(Way(*levels[:3]), levels[3])
        for levels in map(tuple, AllPairs([list(levels) for levels in LEVELS], filter_func=_admitted))
    ]
    return sorted(found, key=full().index)


def missing_pairs(rows: Iterable[Row]) -> set[tuple[Any, Any]]:
    """Pairs of levels that meet in none of these rows."""
    wanted = {
        pair for one, other in itertools.combinations(LEVELS, 2) for pair in itertools.product(one, other)
    }
    for row in rows:
        levels = (row.way.layout, row.way.family, row.way.prefix_cache, row.scenario)
        wanted.difference_update(itertools.combinations(levels, 2))
    return wanted


def _admitted(levels: Sequence[Any]) -> bool:
    """Of each layout every second engine, so chosen that no pair is lost."""
    places = [LEVELS[factor].index(level) for factor, level in enumerate(levels[:3])]
    return len(places) < 3 or sum(places) % 2 == 0


PROMPT_TOKENS = range(3, 90)
"""Ordinary tokens of every target used here."""
MAX_MODEL_LEN = 256
ENGINE: dict[str, Any] = {
    "max_model_len": MAX_MODEL_LEN,
    "max_num_seqs": 8,
    # Prompts above this are computed in chunks.
    "max_num_batched_tokens": 96,
    "block_size": 32,
    # Blocks for three to four of the long requests of the preemption.
    "num_gpu_blocks_override": 15,
}
PATTERN = "[a-c]{2}[d-m]{3,30}"


def requests(scenario: Scenario) -> list[Request]:
    """Greedy, of prompts that no other scenario shares; the same each time."""
    match scenario:
        case Scenario.CHUNKED:
            return [_request(scenario, index, 180 + 9 * index, 20) for index in range(2)]
        case Scenario.PREEMPTION:
            return [_request(scenario, index, 90, 42) for index in range(4)]
        case Scenario.ABORT:
            limits = (5, None, 9, None)
            return [
                _request(scenario, index, 24, 20, abort_after=limit) for index, limit in enumerate(limits)
            ]
        case Scenario.STRUCTURED:
            constraints = ({"regex": PATTERN}, {"choice": ["abcdefghijkl", "zyxwvutsrq"]}, None)
            return [
                _request(scenario, index, 20, 20, structured=one) for index, one in enumerate(constraints)
            ]
        case Scenario.CONCURRENT:
            return [_request(scenario, index, 12, 12) for index in range(8)]


def _request(
    scenario: Scenario,
    index: int,
    length: int,
    tokens: int,
    *,
    abort_after: int | None = None,
    structured: dict[str, Any] | None = None,
) -> Request:
    start, size = 17 * list(Scenario).index(scenario) + 5 * index, len(PROMPT_TOKENS)
    prompt = [PROMPT_TOKENS[(start + (7 + index) * at + at * at) % size] for at in range(length)]
    params: dict[str, Any] = {"temperature": 0, "max_tokens": tokens}
    params |= {"ignore_eos": True} if structured is None else {"structured_outputs": structured}
    return Request(prompt, params, abort_after)


def complete(requests: Sequence[Request]) -> list[Request]:
    """The same, none aborted."""
    return [replace(request, abort_after=None) for request in requests]


def check(
    target: Path, requests: Sequence[Request], references: Sequence[Generation], outputs: Sequence[Generation]
) -> None:
    """Outputs are the references, up to ties of the target's two best tokens; those aborted, their beginning.

    Raises:
        AssertionError: one is not; says which and where.
    """
    expected: list[list[int]] = []
    for request, reference, output in zip(requests, references, outputs, strict=True):
        kept = len(reference.tokens) if request.abort_after is None else len(output.tokens)
        expected.append(reference.tokens[:kept])
        aborted = request.abort_after is not None
        assert output.finish_reason == ("abort" if aborted else reference.finish_reason), output
        assert len(output.tokens) >= (request.abort_after or 0), output
    found = [output.tokens for output in outputs]
    if found != expected:
        verdict = judge(
            TappedTarget.load(target, ()), [list(one.prompt) for one in requests], expected, found
        )
        assert verdict.ok, verdict


def letters(target: Path, vocab: int) -> None:
    """Give a target folder a tokenizer of one printable character a token, as grammars need one."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<s>", "</s>", *(chr(32 + at) for at in range(vocab - 4)), "<mask>"]
    tokenizer = Tokenizer(models.BPE({word: at for at, word in enumerate(words)}, []))
    tokenizer.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", bos_token="<s>", eos_token="</s>"
    ).save_pretrained(target)
    config = json.loads((target / "config.json").read_text())
    assert config["vocab_size"] == len(words)
