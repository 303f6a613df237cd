"""The speculator in a runner in miniature: what is stated of requests, whatever happens to them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sidedraft.integrations.vllm import stating, talker
from sidedraft.integrations.vllm.config import VllmSettings
from sidedraft.integrations.vllm.depth import DepthWord
from sidedraft.verifier.state.outcome import Draft, NoDraft, Outcome, Reason
from support.vllm_stub import PairGroup, SoloGroup, stub_vllm, vllm_config
from support.vllm_world import FACTS, LENGTH, TAPS, Listener, Runner, World, following

WIDTH = 4
SLOTS = 10
BASE = [5, 9, 2, 44, 17, 3, 80, 21, 6, 1, 60, 33, 8, 4, 90, 12, 70, 11, 29, 2]

Make = Callable[..., tuple[World, Listener]]


@contextmanager
def speculators(folder: Path, group: Any = None) -> Iterator[Callable[..., tuple[World, Listener]]]:
    """Makes worlds whose speculator talks to a listener."""
    kind = type("StubRunner", (Runner,), {})
    with stub_vllm(SoloGroup() if group is None else group, kind), pytest.MonkeyPatch.context() as patch:
        from sidedraft.integrations.vllm import speculator

        words: list[DepthWord] = []

        def publish(config: Any) -> DepthWord:
            words.append(DepthWord(folder / f"word-{len(words)}", create=True))
            return words[-1]

        patch.setattr(speculator, "verifier_facts", lambda *_: FACTS)
        patch.setattr(speculator, "publish", publish)

        def make(random: Random | None = None, **changes: Any) -> tuple[World, Listener]:
            world = World(Random(0) if random is None else random, WIDTH, kind(SLOTS))
            listener = Listener(world)
            patch.setattr(speculator, "Drafter", lambda *args, **kwargs: listener)
            listener.close = lambda: None  # type: ignore[attr-defined]
            changes |= {"scheduler_config__max_num_seqs": SLOTS}
            config = vllm_config(
                target=folder, draft=folder, method="dspark", depth=WIDTH, taps=TAPS, **changes
            )
            address = VllmSettings(address=f"ipc://{folder}/draft.sock")
            world.runner.speculator = speculator.RemoteSpeculator(
                config, torch.device("cpu"), world.states, address
            )
            listener.word = words[-1] if words else None  # type: ignore[attr-defined]
            return world, listener

        yield make


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    with speculators(tmp_path) as found:
        yield found


def complete(listener: Listener, name: str) -> None:
    """Every token that was computed has been stated, with its row."""
    (heard,) = [heard for key, heard in listener.open.items() if key[0] == name]  # type: ignore[index]
    running = listener.world.requests[name]
    assert len(heard.tokens) == running.computed
    assert sorted(heard.rows) == list(range(running.computed))


def test_prompts_in_chunks_and_decoding_with_drafts_state_every_token_once(make: Make) -> None:
    world, listener = make()
    world.come("a", BASE, 40)
    world.come("b", BASE[3:12], 40)
    for _ in range(12):
        world.step(["a", "b"], chunk=6)
        complete(listener, "a")
        complete(listener, "b")
    assert listener.stages == {"context_gather", "metadata_d2h", "tokens_h2d"}
    a, b = listener.open.values()
    assert a.depths == [0, 0, 0] + [WIDTH] * 9
    assert b.depths == [0] + [WIDTH] * 11
    assert world.requests["a"].computed > len(BASE) + 9, "no draft was ever accepted"


def test_drafts_stand_in_batch_order_and_fillers_are_the_anchor(make: Make) -> None:
    world, listener = make()
    given: dict[str, list[int]] = {"a": [1, 2, 3, 4], "c": [5, 6]}

    def propose(tokens: list[int], anchor: int, depth: int) -> Outcome:
        (name,) = [name for name, one in world.requests.items() if one.tokens[: len(tokens)] == tokens]
        if name in given:
            return Draft(np.array(given[name], np.int32))
        return NoDraft(Reason.LATE)

    listener._propose = propose  # type: ignore[method-assign]
    for at, name in enumerate("abc"):
        world.come(name, BASE[at : at + 5], 30)
    drafts = world.step(["c", "b", "a"])
    assert drafts is not None
    anchors = {name: world.requests[name].tokens[-1] for name in "abc"}
    assert drafts.tolist() == [
        [5, 6, anchors["c"], anchors["c"]],
        [anchors["b"]] * 4,
        [1, 2, 3, 4],
    ]
    assert listener.fillers == 6


@pytest.mark.parametrize("depth", [0, 2])
def test_a_smaller_depth_of_the_step_asks_for_less_and_states_all(make: Make, depth: int) -> None:
    world, listener = make()
    world.come("a", BASE[:5], 40)
    for _ in range(5):
        world.step(["a"], depth=depth)
        complete(listener, "a")
    (heard,) = listener.open.values()
    assert set(heard.depths) == {depth}
    if depth == 0:
        assert listener.fillers == 0


def test_nothing_is_asked_when_only_one_token_is_left(make: Make) -> None:
    world, listener = make()
    world.come("a", BASE[:5], 1)
    world.come("b", BASE[:6], 2)
    world.step(["a", "b"])
    a, b = listener.open.values()
    assert a.depths == [0]
    assert b.depths == [0], "after this step one token is left, which the target gives by itself"
    complete(listener, "a")
    complete(listener, "b")
    world.go("a")
    world.go("b")
    world.come("c", BASE[:5], 3)
    world.step(["c"])
    (heard,) = listener.open.values()
    assert heard.depths == [WIDTH]


def test_drafts_end_where_the_engine_does(make: Make) -> None:
    world, listener = make()
    listener._propose = _right  # type: ignore[method-assign, assignment]
    world.come("a", (BASE * 5)[: LENGTH - 9], 1000)
    world.step(["a"], chunk=LENGTH)
    while len(world.requests["a"].tokens) < LENGTH:
        world.step(["a"])
        complete(listener, "a")
    (heard,) = listener.open.values()
    assert heard.depths[0] == WIDTH
    assert heard.depths[-1] == 0
    assert len(heard.tokens) == LENGTH - 1


def _right(tokens: list[int], anchor: int, depth: int) -> Draft:
    ahead = [*tokens, anchor]
    for _ in range(depth):
        ahead.append(following(ahead))
    return Draft(np.array(ahead[len(tokens) + 1 :], np.int32))


def test_a_prefix_hit_opens_with_the_tokens_before_it(make: Make) -> None:
    world, listener = make()
    world.come("a", BASE, 20, cached=16)
    world.step(["a"])
    (heard,) = listener.open.values()
    assert listener.prefixes == 1
    assert heard.tokens == BASE
    assert sorted(heard.rows) == [16, 17, 18, 19]


def test_a_preempted_request_comes_again_as_another(make: Make) -> None:
    world, listener = make()
    world.come("a", BASE, 40)
    for _ in range(6):
        world.step(["a"], chunk=64)
    (first,) = listener.open
    world.preempt("a", cached=8)
    world.step([])
    assert not listener.open, "the step that freed the slot ran nothing"
    world.step(["a"], chunk=64)
    (second,) = listener.open
    assert second != first
    assert listener.open[second].tokens == world.requests["a"].tokens[:-1]
    assert min(listener.open[second].rows) == 8


def test_ends_are_seen_in_steps_that_run_nothing(make: Make) -> None:
    world, listener = make()
    world.come("a", BASE, 40)
    world.come("b", BASE[:4], 40)
    world.step(["a", "b"])
    world.go("a")
    world.step(["b"])
    assert [key[0] for key in listener.open] == ["b"]  # type: ignore[index]
    world.go("b")
    world.step([])
    assert not listener.open


def test_a_streaming_update_is_another_request_under_the_same_id(make: Make) -> None:
    world, listener = make()
    world.come("a", BASE, 40)
    for _ in range(5):
        world.step(["a"])
    kept = world.requests["a"].tokens[:-1]
    world.come("a", [*kept, 50, 51, 52], 40, cached=len(kept))
    world.step(["a"])
    (heard,) = listener.open.values()
    assert heard.tokens == [*kept, 50, 51, 52]
    assert min(heard.rows) == len(kept)


def test_a_slot_that_is_reused_at_once_confuses_nothing(make: Make) -> None:
    world, listener = make()
    world.come("a", BASE, 40)
    world.step(["a"], chunk=64)
    slot = world.states.req_id_to_index["a"]
    world.go("a")
    world.come("b", BASE[::-1], 40)
    world.step(["b"], chunk=64)
    assert world.states.req_id_to_index["b"] == slot
    (heard,) = listener.open.values()
    assert heard.tokens == BASE[::-1]


def test_recomputed_positions_are_stated_again(make: Make) -> None:
    world, listener = make()
    world.come("a", BASE, 40)
    world.step(["a"], chunk=8)
    world.step(["a"], chunk=8)
    world.rewind("a", 3)
    world.step(["a"], chunk=64)
    (heard,) = listener.open.values()
    assert heard.tokens == BASE
    assert len(listener.open) == 1


def test_after_a_step_that_went_by_unseen_a_request_is_opened_again(make: Make) -> None:
    world, listener = make()
    world.come("a", BASE, 20)
    world.come("b", BASE, 20)
    world.step(["a", "b"], chunk=16)
    world.rewind("b", 3)
    world.step(["a", "b"], chunk=2)
    world.step(["a", "b"], chunk=1, unseen=True)
    world.step(["a", "b"], chunk=1)
    assert listener.prefixes == 2
    (a, b) = listener.open.values()
    assert (a.tokens, b.tokens) == (BASE, BASE[:7])


def test_what_else_a_context_depends_on_reaches_the_opening(make: Make) -> None:
    world, listener = make()
    adapter = SimpleNamespace(lora_name="x", lora_path="/x", lora_int_id=1, load_inplace=False)
    world.come("plain", BASE, 20)
    world.come("adapted", BASE, 20, lora_request=adapter)
    world.come("embedded", BASE, 20, prompt_embeds=torch.zeros(2))
    world.step(["plain", "adapted", "embedded"], chunk=32)
    plain, adapted, embedded = listener.open.values()
    assert (plain.context_key, plain.private) == (b"", False)
    assert len(adapted.context_key) == 32
    assert embedded.private


@pytest.mark.parametrize("name", ["_warmup_0_", "_v2_mixed_warmup_prefill"])
def test_warm_up_never_reaches_the_server(make: Make, name: str) -> None:
    world, listener = make()
    world.come(name, BASE, 20)
    drafts = [world.step([name], chunk=64) for _ in range(3)]
    assert torch.equal(torch.cat(drafts), torch.zeros(3, WIDTH, dtype=torch.int64))  # type: ignore[arg-type]
    world.go(name)
    world.step([])
    assert not listener.submits
    assert not listener.stages


@pytest.mark.parametrize("flag", ["dummy_run", "is_profile"])
def test_dummy_and_profile_runs_never_reach_the_server(
    make: Make, flag: str, caplog: pytest.LogCaptureFixture
) -> None:
    world, listener = make()
    batch = SimpleNamespace(num_reqs=3, req_ids=["req_0_x", "req_1_x", "req_2_x"])
    assert _propose(world, batch, **{flag: True}).shape == (3, WIDTH)
    assert not listener.submits
    assert not caplog.records


def _propose(world: World, batch: Any, **flags: Any) -> Any:
    nothing = [None] * 10
    return world.runner.speculator.propose(batch, *nothing, **flags)


def test_without_a_server_nothing_is_stated_and_later_everything_anew(make: Make) -> None:
    world, listener = make()
    listener.connected = False
    for at in range(6):
        world.come(f"r{at}", BASE[at:], 60)
    names = list(world.requests)
    for _ in range(4):
        world.step(names, chunk=64)
    assert not listener.submits
    assert listener.fillers == 4 * 6 * WIDTH
    listener.connected = True
    world.step(names)
    assert len(listener.open) == 4, "not all at once"
    world.step(names)
    assert len(listener.open) == 6
    assert listener.prefixes == 6
    listener.connected = False
    world.step(names)
    assert not listener.open
    listener.connected = True
    world.come("new", BASE, 20, cached=16)
    world.step([*names, "new"][1:])
    assert sum(key[0] == "new" for key in listener.open) == 1, "a new request does not wait its turn"  # type: ignore[index]


def test_the_word_follows_what_can_be_drafted(make: Make) -> None:
    world, listener = make()
    word: DepthWord = listener.word  # type: ignore[attr-defined]
    world.come("a", BASE[:5], 60)
    assert word.get() == 0, "nothing is known yet"
    world.step(["a"])
    assert word.get() == FACTS.draft.max_depth
    listener.asking = False
    world.step(["a"])
    assert word.get() == 0
    complete(listener, "a")
    listener.asking = True
    world.step(["a"], depth=0)
    assert word.get() == FACTS.draft.max_depth
    listener.connected = False
    world.step(["a"])
    assert word.get() == 0


def test_a_request_with_ids_of_another_modality_goes_without_drafts_and_harms_nobody(make: Make) -> None:
    world, listener = make()
    listener.facts = SimpleNamespace(target=FACTS.target, max_position=LENGTH)
    world.come("odd", [5, 7, 200, 7], 20)
    world.come("hit", [5, 200, *BASE], 20, cached=16)
    world.come("negative", [5, 7, -1, 7], 20)
    world.come("a", BASE, 20)
    for chunk in (2, 64, 64):
        world.step(["odd", "hit", "negative", "a"], chunk=chunk)
    assert [key[0] for key in listener.open] == ["a"]  # type: ignore[index]
    complete(listener, "a")


def test_aux_states_that_the_server_was_not_told_of_are_not_sent(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    world, listener = make()
    world.come("a", BASE, 20)
    forward = world._forward

    def fewer(*args: Any) -> Any:
        batch, aux, rejected = forward(*args)
        return batch, aux[:1], rejected

    world._forward = fewer  # type: ignore[method-assign]
    with caplog.at_level(logging.WARNING):
        world.step(["a"])
    assert not listener.submits
    assert "expected 3 at each of the taps [1, 3]" in caplog.text


def test_a_fault_of_ours_costs_the_step_its_drafts_and_no_more(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    world, listener = make()
    world.come("a", BASE, 60)
    world.step(["a"], chunk=64)
    listener.broken = RuntimeError("no such luck")
    with caplog.at_level(logging.WARNING):
        world.step(["a"])
    assert "no such luck" in caplog.text
    assert not listener.open
    assert listener.word.get() == 0  # type: ignore[attr-defined]
    for _ in range(3):
        world.step(["a"])
    (heard,) = listener.open.values()
    assert heard.tokens == world.requests["a"].tokens[:-1]
    assert listener.word.get() > 0  # type: ignore[attr-defined]


STAGES = [
    "read_batch",
    "progress",
    "Stater.submissions",
    "Talker._checked",
    "Talker._deliver",
    "Talker.failed",
]


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_broadcast_is_reached_whatever_happens(
    tmp_path: Path, stage: str, error: type[BaseException]
) -> None:
    first = PairGroup()
    with speculators(tmp_path, first) as make, pytest.MonkeyPatch.context() as patch:
        world, listener = make()
        world.come("a", BASE, 60)
        world.step(["a"], chunk=64)

        def fail(*args: Any, **kwargs: Any) -> Any:
            raise error("injected")

        if stage == "Talker.failed":
            listener.broken = RuntimeError("first")
        owner, _, name = stage.rpartition(".")
        holder = getattr(talker, owner, None) or getattr(stating, owner, None) if owner else talker
        patch.setattr(holder, name, fail)
        before = len(first.sent)
        if error is KeyboardInterrupt or stage == "Talker.failed":
            with pytest.raises(error):
                world.step(["a"])
        else:
            world.step(["a"])
        assert len(first.sent) == before + 1


def test_every_rank_gets_the_first_ones_tokens_and_only_that_one_talks(tmp_path: Path) -> None:
    first = PairGroup()
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with speculators(tmp_path / "one", first) as make:
        world, _ = make(Random(3))
        world.come("a", BASE, 60)
        drafts = [world.step(["a"], chunk=64, depth=depth) for depth in (4, 4, 0, 2)]
    assert len(first.sent) == 3, "a step of depth 0 has nothing to share"
    with speculators(tmp_path / "two", PairGroup(first)) as make:
        world, listener = make(Random(3))
        world.runner.speculator.announce([SimpleNamespace()])
        batch = SimpleNamespace(num_reqs=1, req_ids=["a"])
        for sent, depth in zip(drafts, (4, 4, 0, 2), strict=True):
            got = _propose(world, batch, num_speculative_tokens=depth)
            assert sent is not None
            if depth:
                assert got.tolist() == sent.tolist()
        assert not listener.submits


def test_probabilistic_drafts_are_one_hot(make: Make) -> None:
    world, _ = make(speculative_config__draft_sample_method="probabilistic")
    assert world.runner.speculator.draft_logits is None


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_whatever_happens_to_requests_only_the_truth_is_stated(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The listener checks every statement; here things happen in random order."""
    with speculators(tmp_path_factory.mktemp("world")) as make:
        random = Random(seed)
        world, listener = make(random)
        for at in range(60):
            _happen(world, listener, random, at)
            chosen = [name for name in world.requests if random.random() < 0.8]
            depth = random.choice([WIDTH, WIDTH, 2, 0])
            world.step(random.sample(chosen, len(chosen)), chunk=random.choice([3, 8, 64]), depth=depth)
            for name in [n for n, one in world.requests.items() if len(one.tokens) >= min(LENGTH, one.limit)]:
                world.go(name)
        for name in list(world.requests):
            world.go(name)
        world.step([])
        assert not listener.open


def _happen(world: World, listener: Listener, random: Random, at: int) -> None:
    running = {name: one for name, one in world.requests.items() if one.new is None}
    for name, one in running.items():
        slot = world.states.req_id_to_index[name]
        in_prompt = len(one.tokens) == world.states.prefill_len[slot]
        what = random.random()
        if what < 0.03:
            world.go(name)
        elif what < 0.06:
            world.preempt(name, cached=random.choice([0, len(one.tokens) // 8 * 4]))
        elif what < 0.09 and in_prompt:
            world.rewind(name, random.randint(0, one.computed))
        elif what < 0.12 and one.computed < LENGTH - 30:
            kept = one.tokens[: one.computed]
            world.come(name, [*kept, *random.choices(range(90), k=5)], 20, cached=len(kept))
    if random.random() < 0.5 and len(world.requests) < SLOTS:
        prompt = (BASE * 3)[: random.randint(1, 50)]
        world.come(
            f"r{at}", prompt, random.randint(1, 30), cached=random.choice([0, (len(prompt) - 1) // 8 * 8])
        )
    what = random.random()
    listener.connected = what > 0.1
    listener.asking = what > 0.2
    if what > 0.95:
        listener.broken = RuntimeError("injected")
