"""The speculative loop with drafts of every quality: the output is the target's, the reports are exact."""

from __future__ import annotations

import random

import pytest
import torch

from sidedraft.integrations.transformers.loop import generate
from sidedraft.integrations.transformers.options import Options
from sidedraft.integrations.transformers.report import Report
from sidedraft.settings import SettingsError
from sidedraft.targets.tapped import TappedTarget
from support.checkpoints import tiny_target
from support.scripted_drafter import ScriptedDrafter, Told

TAPS = (0, 2, 5, 6)
PROMPTS = [[5, 9, 11], [int(t) for t in range(3, 43)], [7] * 17, [50, 2, 60, 80, 33], [96]]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> TappedTarget:
    torch.set_num_threads(1)
    return TappedTarget.load(tiny_target(tmp_path_factory.mktemp("target")), TAPS)


def outputs(report: Report) -> list[list[int]]:
    return [one.tokens for one in report.generations]


def knowing(target: TappedTarget, options: Options, skill: float) -> ScriptedDrafter:
    """Proposes the target's own continuation, each token spoiled with probability 1 - skill."""
    texts = [
        [*prompt, *tokens]
        for prompt, tokens in zip(PROMPTS, outputs(generate(target, PROMPTS, options)), strict=True)
    ]
    dice = random.Random(4)

    def propose(known: list[int], depth: int) -> list[int] | None:
        if dice.random() < 0.15:
            return None
        text = next(text for text in texts if text[: len(known)] == known)
        right = text[len(known) :][:depth]
        return [token if dice.random() < skill else (token + 1) % 97 for token in right]

    return ScriptedDrafter(propose)


def told_by_prompt(drafter: ScriptedDrafter) -> list[Told]:
    return list(drafter.told.values())


def test_without_drafts_it_is_greedy_decoding(target: TappedTarget) -> None:
    ours = outputs(generate(target, PROMPTS, Options(max_new_tokens=20, chunk=16)))
    for prompt, output in zip(PROMPTS, ours, strict=True):
        ids = torch.tensor([prompt])
        theirs = target.model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=20, do_sample=False, eos_token_id=None
        )
        assert output == theirs[0, len(prompt) :].tolist()


@pytest.mark.parametrize("skill", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_drafts_change_no_token(target: TappedTarget, skill: float, temperature: float) -> None:
    options = Options(max_new_tokens=24, depth=3, temperature=temperature, seed=9, batch=3, chunk=16)
    plain = generate(target, PROMPTS, options)
    drafter = knowing(target, options, skill)
    drafted = generate(target, PROMPTS, options, drafter)
    assert outputs(drafted) == outputs(plain)
    assert drafted.no_draft["late"] > 0
    if skill == 1.0:
        assert drafted.acceptance_by_position == [1.0, 1.0, 1.0]
        assert drafted.acceptance_length > 3.5
    if skill == 0.0:
        assert drafted.acceptance_length == 1.0


def test_batching_changes_no_token(target: TappedTarget) -> None:
    one, many = (
        generate(target, PROMPTS, Options(max_new_tokens=16, temperature=0.8, batch=b)) for b in (1, 5)
    )
    assert outputs(one) == outputs(many)


def test_reports_are_the_accepted_tokens_with_the_states_that_entered_the_tapped_layers(
    target: TappedTarget,
) -> None:
    options = Options(max_new_tokens=20, depth=3, batch=4, chunk=16)
    drafter = knowing(target, options, skill=0.6)
    report = generate(target, PROMPTS, options, drafter)
    assert any(
        0 < a < d for one in report.generations for d, a in zip(one.drafted, one.accepted, strict=True)
    )
    for prompt, one, told in zip(PROMPTS, report.generations, told_by_prompt(drafter), strict=True):
        assert told.tokens == [*prompt, *one.tokens[:-1]]
        assert told.next_token == one.tokens[-1]
        assert told.released == 1
        with torch.no_grad():
            states = target.model(torch.tensor([told.tokens]), output_hidden_states=True).hidden_states
        width = target.hidden_size
        for place, tap in enumerate(TAPS):
            aux = told.aux[:, place * width : (place + 1) * width]
            if tap == target.layers:  # transformers shows the last state normalised only
                aux = target.model.base_model.norm(aux)
            torch.testing.assert_close(aux, states[tap][0], atol=1e-4, rtol=1e-4)


def test_no_draft_is_wanted_inside_a_prompt_nor_past_the_end(target: TappedTarget) -> None:
    options = Options(max_new_tokens=6, depth=4, chunk=16)
    drafter = knowing(target, options, skill=0.0)
    generate(target, PROMPTS, options, drafter)
    long = told_by_prompt(drafter)[1]
    # Chunks of 16, 16 and 8; then 5, 4, 3, 2, 1 tokens to go, the last without a draft; the end.
    assert long.depths == [0, 0, 4, 3, 2, 1, 0, 0]


def test_one_new_token_asks_for_nothing(target: TappedTarget) -> None:
    drafter = ScriptedDrafter(lambda known, depth: pytest.fail("no draft can be used"))
    report = generate(target, PROMPTS, Options(max_new_tokens=1), drafter)
    assert outputs(report) == [tokens[:1] for tokens in outputs(generate(target, PROMPTS, Options()))]
    assert [one.finish for one in report.generations] == ["length"] * len(PROMPTS)
    assert report.acceptance_length == 0.0


def test_an_ending_token_inside_an_accepted_draft_ends_the_output(target: TappedTarget) -> None:
    options = Options(max_new_tokens=24, depth=4)
    [[*tokens]] = outputs(generate(target, PROMPTS[:1], options))
    # The first token after the second that did not stand before: drafted in the first step, inside the draft.
    place = next(i for i in range(2, 5) if tokens[i] not in tokens[:i])
    ending = Options(max_new_tokens=24, depth=4, eos=frozenset({tokens[place]}))
    drafter = knowing(target, options, skill=1.0)
    drafter._propose = lambda known, depth: tokens[len(known) - len(PROMPTS[0]) :][:depth]
    report = generate(target, PROMPTS[:1], ending, drafter)
    [one] = report.generations
    assert one.tokens == tokens[: place + 1]
    assert one.finish == "eos"
    assert one.accepted == [place - 1]
    [told] = told_by_prompt(drafter)
    assert told.tokens == [*PROMPTS[0], *tokens[:place]]


def test_without_a_draft_the_target_runs_one_column(
    target: TappedTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    widths = []
    forward = target.forward

    def spy(cache: object, tokens: torch.Tensor, *rest: object, **named: object) -> object:
        widths.append(tokens.shape[1])
        return forward(cache, tokens, *rest, **named)

    monkeypatch.setattr(target, "forward", spy)
    drafter = ScriptedDrafter(lambda known, depth: [1, 2, 3] if len(widths) % 3 == 1 else None)
    report = generate(target, PROMPTS[:1], Options(max_new_tokens=12, depth=3), drafter)
    assert widths[1:] == [1 + drafted for drafted in report.generations[0].drafted]
    assert widths[1:4] == [4, 1, 1]


def test_progress_sees_every_step(target: TappedTarget) -> None:
    seen: list[int] = []
    generate(
        target, PROMPTS[:2], Options(max_new_tokens=5), progress=lambda report: seen.append(report.new_tokens)
    )
    assert seen == [2, 4, 6, 8, 10]


@pytest.mark.parametrize(
    ("prompt", "said"),
    [([], "empty"), ([1, 97], "1..97"), ([-1, 4], "-1..4"), ([1] * 4090, "4090 tokens")],
)
def test_a_prompt_the_target_cannot_run_is_named(target: TappedTarget, prompt: list[int], said: str) -> None:
    with pytest.raises(ValueError, match=f"prompt 1: .*{said}"):
        generate(target, [[1], prompt], Options())


@pytest.mark.parametrize(
    ("field", "value"),
    [("max_new_tokens", 0), ("depth", -1), ("depth", 65), ("temperature", -0.1), ("batch", 0), ("chunk", 0)],
)
def test_a_bad_option_is_named(field: str, value: object) -> None:
    with pytest.raises(SettingsError, match=field):
        Options(**{field: value})
