"""Structured output that begins where the reasoning ends: drafts cross that end, and the grammar's, as far
as vLLM's own drafting does with the same weights."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import pytest

from support.vllm_harness import Generation, Layout, Request, needs_vllm, started
from support.vllm_parity import Arm, compare, run_both
from support.vllm_reasoning import Reasoning, reasoning, token

pytestmark = [
    needs_vllm,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("vllm-reasoning"),
]

OPTIONS = {
    "structured_outputs_config": {"reasoning_parser": "deepseek_r1"},
    "enable_prefix_caching": False,
    "max_model_len": 256,
}
GRAMMARS = {
    "legal": "a{6}",
    "legal beyond some end": "a{2,9}",
    "never legal": "[0-9]{8}",
    "late": "a{2}[0-9]a{5}",
}


@dataclass
class Runs:
    """Of every grammar and prompt, in that order."""

    made: Reasoning
    plain: list[Generation]
    local: Arm
    remote: Arm

    def of(self, grammar: str, arm: Arm) -> list[Generation]:
        count = len(self.made.prompts)
        first = list(GRAMMARS).index(grammar) * count
        return arm.generations[first : first + count]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("reasoning")
    made = reasoning(folder)
    asked = [
        Request(prompt, {"temperature": 0, "max_tokens": 32, "structured_outputs": {"regex": pattern}})
        for pattern in GRAMMARS.values()
        for prompt in made.prompts
    ]
    # In two batches: the interpreter's kernels for grammars take small ones only.
    batches = [asked[: len(asked) // 2], asked[len(asked) // 2 :]]
    with started(Layout.IN_PROCESS, made.pair.target, engine=OPTIONS) as engine:
        plain = [one for batch in batches for one in engine.generate(batch)]
    return Runs(made, plain, *run_both(made.pair, batches, folder, OPTIONS))


def step_with(end: int, generation: Generation) -> list[int]:
    """The tokens that came in the step in which this one did."""
    place = generation.tokens.index(end)
    stop = next(at for at in accumulate(generation.steps) if at > place)
    start = max((at for at in accumulate(generation.steps) if at <= place), default=0)
    return generation.tokens[start:stop]


def test_the_target_reasons_freely_and_then_keeps_to_the_grammar(runs: Runs) -> None:
    for generation in runs.plain:
        thoughts, _, rest = generation.text.partition("</think>")
        assert thoughts
        assert set(rest) <= set("a0123456789"), generation
        assert generation.finish_reason == "stop"


def test_the_output_is_what_it_is_without_drafts_from_a_server_and_from_vllm_itself(runs: Runs) -> None:
    for arm in (runs.local, runs.remote):
        assert [one.tokens for one in arm.generations] == [one.tokens for one in runs.plain]


def test_drafts_cross_the_end_of_reasoning(runs: Runs) -> None:
    crossed = [step_with(runs.made.end, one) for one in runs.of("legal", runs.remote)]
    after = [step[step.index(runs.made.end) + 1 :] for step in crossed]
    assert any(len(tokens) >= 2 for tokens in after), crossed
    assert all(set(tokens) <= {token("a")} for tokens in after)


def test_drafts_cross_the_end_of_the_grammar(runs: Runs) -> None:
    """The draft says `a` for ever; steps bring several until the last, which ends the request."""
    for one in runs.of("legal", runs.remote):
        assert one.tokens[one.tokens.index(runs.made.end) + 1 :][:6] == [token("a")] * 6
        assert len(one.steps) < len(one.tokens) - 3


def test_as_much_is_drafted_and_accepted_as_by_vllm_itself(runs: Runs) -> None:
    found = compare(runs.local, runs.remote)
    assert found.ok, found
    assert found.accepted > 0
    assert [one.steps for one in runs.remote.generations] == [one.steps for one in runs.local.generations]
