"""The plugin inside a real vLLM: not to be noticed without a configuration; the end of a wrong start."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sidedraft.integrations.vllm import versions
from support.agreeing import MAX_DEPTH, agreeing_pair
from support.vllm_harness import Generation, Layout, Request, VllmError, needs_vllm, started

# One worker: the two runs that all but one compare are made once.
pytestmark = [needs_vllm, pytest.mark.slow, pytest.mark.xdist_group("vllm-plugin")]

OTHER_PLUGINS = "triton_cpu_for_tests,lora_filesystem_resolver,lora_hf_hub_resolver"
"""All that are there but ours."""
PARAMS = {"temperature": 0, "max_tokens": 24, "ignore_eos": True}
REQUESTS = [Request([(7 * at + 3 * one) % 90 + 4 for at in range(40)], PARAMS) for one in range(3)]


@dataclass
class Seen:
    """A run of vLLM's own dspark drafting."""

    generations: list[Generation]
    metrics: dict[str, Any]
    types: dict[str, str]
    modules: set[str]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return agreeing_pair(tmp_path_factory.mktemp("models"), hidden=128)


@pytest.fixture(scope="module")
def runs(pair: tuple[Path, Path]) -> dict[str, Seen]:
    """With the plugin, which nothing configures, and without it."""
    target, draft = pair
    runs = {}
    for name, environ in {"with": {}, "without": {"VLLM_PLUGINS": OTHER_PLUGINS}}.items():
        speculative = {"method": "dspark", "model": str(draft), "num_speculative_tokens": MAX_DEPTH}
        with started(
            Layout.IN_PROCESS, target, engine={"speculative_config": speculative}, environ=environ
        ) as engine:
            runs[name] = Seen(
                generations=engine.generate(REQUESTS),
                metrics=engine.metrics(),
                types=engine.call("support.vllm_probe:types"),
                modules=set(engine.call("support.vllm_probe:modules")),
            )
    return runs


def test_unconfigured_the_drafts_and_the_output_are_stocks(runs: dict[str, Seen]) -> None:
    assert runs["with"].generations == runs["without"].generations
    counted = {
        name: [run.metrics[name] for run in runs.values()]
        for name in runs["without"].metrics
        if "spec_decode" in name or "prefix_cache" in name or name.endswith("_tokens")
    }
    assert counted["vllm:spec_decode_num_accepted_tokens"][0] > 0
    assert all(one == other for one, other in counted.values()), counted


def test_unconfigured_the_types_are_stocks(runs: dict[str, Seen]) -> None:
    assert runs["with"].types == runs["without"].types
    assert runs["with"].types["speculator"].endswith("DSparkSpeculator")


def test_unconfigured_nothing_is_imported_but_the_plugin(runs: dict[str, Seen]) -> None:
    ours = "sidedraft.integrations.vllm"
    extra = runs["with"].modules - runs["without"].modules
    assert extra == {f"{ours}.plugin", f"{ours}.contract", f"{ours}.versions"}
    assert not runs["without"].modules - runs["with"].modules


def test_configured_on_an_unsupported_version_the_start_ends_in_one_line(pair: tuple[Path, Path]) -> None:
    """By the command line, which the plugin sees last; no worker and no engine is started before."""
    target, draft = pair
    engine = {
        "speculative_config": {"method": "dspark", "model": str(draft), "num_speculative_tokens": 2},
        "additional_config": {"sidedraft": {"address": "ipc:///run/sidedraft/draft.sock"}},
    }
    with (
        pytest.raises(VllmError) as error,
        started(Layout.SERVER, target, engine=engine, patches=("unsupported",)),
    ):
        pass
    lines = str(error.value).splitlines()
    assert versions.RANGE in lines[-1]
    assert "0.99.0" in lines[-1]
    assert not any("EngineCore pid" in line for line in lines)
