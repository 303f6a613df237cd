"""vLLM's model runner in miniature: what goes on between the scheduler and a speculator, without a model.

The target is a function of the tokens so far, and so are its aux states: every row that is stated can be
checked. `Listener` takes the drafter's place and objects to whatever is not true.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sidedraft.integrations.vllm.facts import VerifierFacts
from sidedraft.verifier.state.outcome import Draft, NoDraft, Outcome, Reason
from sidedraft.verifier.submission import Submission
from sidedraft.wire.messages import DraftFacts, TargetFacts

VOCAB = 97
TAPS = (1, 3)
HIDDEN = 3
LENGTH = 96
"""max_model_len"""

FACTS = VerifierFacts(
    target=TargetFacts(taps=TAPS, hidden_size=HIDDEN, vocab_size=VOCAB),
    draft=DraftFacts(family="dspark", layout="anchor", max_depth=5),
    max_position=LENGTH,
)


def following(tokens: Sequence[int]) -> int:
    """The target's next token."""
    return (sum(token * (place % 7 + 3) for place, token in enumerate(tokens)) * 31 + len(tokens)) % VOCAB


def states(tokens: Sequence[int], position: int) -> list[float]:
    """The aux row of a position: it depends on every token up to there."""
    seed = sum(token * (place + 1) for place, token in enumerate(tokens[: position + 1]))
    return [float(seed * 8 + column) for column in range(len(TAPS) * HIDDEN)]


@dataclass(eq=False)
class Heard:
    """One request as it was stated."""

    tokens: list[int]
    rows: dict[int, list[float]] = field(default_factory=dict)
    context_key: bytes = b""
    private: bool = False
    depths: list[int] = field(default_factory=list)


class Listener:
    """Takes the place of a `Drafter`."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.facts = FACTS
        self.address = "ipc:///nowhere"
        self.connected = True
        self.asking = True
        self.open: dict[Hashable, Heard] = {}
        self.submits = 0
        self.fillers = 0
        self.prefixes = 0
        self.stages: set[str] = set()
        self.broken: Exception | None = None
        """Raised by the next submit."""

    @property
    def depth(self) -> int:
        return FACTS.draft.max_depth if self.connected and self.asking else 0

    def submit(self, submissions: Sequence[Submission]) -> Any:
        if self.broken is not None:
            error, self.broken = self.broken, None
            raise error
        assert self.connected
        self.submits += 1
        try:
            outcomes = {one.request: self._take(one) for one in submissions}
        except AssertionError as untrue:  # the speculator would swallow it
            self.world.untrue = untrue
            raise
        assert len(outcomes) == len(submissions)
        return SimpleNamespace(result=lambda: outcomes, times={"client_total": 0.001})

    def release(self, requests: Iterable[Hashable]) -> None:
        for request in requests:
            self.open.pop(request, None)  # as the drafter does

    def observe(self, stage: str, seconds: float) -> None:
        assert seconds >= 0
        self.stages.add(stage)

    def count_fillers(self, count: int) -> None:
        assert count >= 0
        self.fillers += count

    def _take(self, one: Submission) -> Outcome:
        assert isinstance(one.request, tuple)
        truth = self.world.requests[one.request[0]].tokens
        heard = self.open.get(one.request)
        if heard is None:
            prefix = [] if one.prefix is None else torch.as_tensor(one.prefix).tolist()
            self.prefixes += bool(prefix)
            assert len(prefix) == one.first
            heard = Heard(prefix, context_key=one.context_key, private=one.private)
            self.open[one.request] = heard
        assert one.first <= len(heard.tokens), "a step of it is missing"
        del heard.tokens[one.first :]
        heard.tokens += [int(token) for token in one.tokens]
        assert heard.tokens == truth[: len(heard.tokens)]
        assert one.next_token == truth[len(heard.tokens)]
        assert one.rows is not None
        assert one.rows_at == one.first
        assert len(one.rows) == len(one.tokens)
        for place, row in enumerate(torch.as_tensor(one.rows).tolist()):
            assert row == states(truth, one.first + place), "a row of another token"
            heard.rows[one.first + place] = row
        heard.depths.append(one.depth)
        if not one.depth:
            return NoDraft(Reason.UNASKED)
        assert len(heard.tokens) + one.depth <= LENGTH - 1
        return self._propose(heard.tokens, one.next_token, one.depth)

    def _propose(self, tokens: list[int], anchor: int, depth: int) -> Outcome:
        random = self.world.random
        if not self.asking or random.random() < 0.1:
            return NoDraft(Reason.LATE)
        ahead = [*tokens, anchor]
        for _ in range(random.randint(1, depth)):
            ahead.append(following(ahead) if random.random() < 0.7 else random.randrange(VOCAB))
        return Draft(np.array(ahead[len(tokens) + 1 :], np.int32))


@dataclass(eq=False)
class Running:
    """What the scheduler knows of a request."""

    tokens: list[int]
    """Prompt and output, as they are in truth."""
    prompt: int
    limit: int
    new: Any = None
    """Its new-request data while it waits to be added."""
    computed: int = 0


class RequestState:
    """As vLLM's: slots are recycled, last in first out."""

    def __init__(self, slots: int) -> None:
        self.max_model_len = LENGTH
        self.req_id_to_index: dict[str, int] = {}
        self.free_indices = list(range(slots))
        self.all_token_ids = SimpleNamespace(gpu=torch.full((slots, LENGTH), 7, dtype=torch.int32))
        self.num_computed_tokens = SimpleNamespace(gpu=torch.zeros(slots, dtype=torch.int32))
        self.max_seq_len = np.zeros(slots, dtype=np.int32)
        self.prefill_len = np.zeros(slots, dtype=np.int32)
        self.draft_tokens: dict[int, list[int]] = {}

    def add_request(
        self,
        req_id: str,
        prompt_len: int,
        all_token_ids: list[int],
        num_computed_tokens: int,
        max_tokens: int,
    ) -> None:
        slot = self.req_id_to_index[req_id] = self.free_indices.pop()
        self.all_token_ids.gpu[slot, : len(all_token_ids)] = torch.tensor(all_token_ids, dtype=torch.int32)
        self.num_computed_tokens.gpu[slot] = num_computed_tokens
        self.max_seq_len[slot] = prompt_len + max_tokens
        self.prefill_len[slot] = len(all_token_ids)
        self.draft_tokens[slot] = []

    def remove_request(self, req_id: str) -> int | None:
        slot = self.req_id_to_index.pop(req_id, None)
        if slot is not None:
            self.free_indices.append(slot)
        return slot


class Runner:
    """As vLLM's `GPUModelRunner`, of which `add_requests` is wrapped."""

    def __init__(self, slots: int) -> None:
        self.req_states = RequestState(slots)
        self.speculator: Any = None

    def add_requests(self, scheduler_output: Any) -> None:
        for new in scheduler_output.scheduled_new_reqs:
            self.req_states.remove_request(new.req_id)
            self.req_states.add_request(
                req_id=new.req_id,
                prompt_len=new.prompt_len,
                all_token_ids=new.prefill_token_ids,
                num_computed_tokens=new.num_computed_tokens,
                max_tokens=new.max_tokens,
            )


class World:
    """The scheduler and the runner around a speculator's `propose`."""

    def __init__(self, random: Any, width: int, runner: Runner) -> None:
        self.random = random
        self.width = width
        self.requests: dict[str, Running] = {}
        self.runner = runner
        self.states = runner.req_states
        self.untrue: AssertionError | None = None
        """What the listener had to object to."""
        self._gone: list[str] = []

    def come(self, name: str, prompt: Sequence[int], limit: int, *, cached: int = 0, **data: Any) -> None:
        """A request, or a streaming update of one, is admitted; `cached` of its tokens need no computing."""
        running = Running(list(prompt), len(prompt), len(prompt) + limit)
        self.requests[name] = running
        self._new(name, running, cached, data)

    def preempt(self, name: str, *, cached: int = 0) -> None:
        """It leaves its slot and comes again with what it has."""
        self._gone.append(name)
        self._new(name, self.requests[name], cached, {})

    def go(self, name: str) -> None:
        """Finished or aborted: the runner hears of it with the next step."""
        del self.requests[name]
        self._gone.append(name)

    def rewind(self, name: str, computed: int) -> None:
        """Computed tokens turn out to be invalid, and are computed once more."""
        slot = self.states.req_id_to_index[name]
        self.requests[name].computed = computed
        self.states.num_computed_tokens.gpu[slot] = computed
        self.states.draft_tokens[slot] = []

    def _new(self, name: str, running: Running, cached: int, data: dict[str, Any]) -> None:
        running.computed = cached
        running.new = SimpleNamespace(
            req_id=name,
            prompt_len=running.prompt,
            prefill_token_ids=list(running.tokens),
            num_computed_tokens=cached,
            max_tokens=running.limit - running.prompt,
            **{"prompt_embeds": None, "prompt_is_token_ids": None, "lora_request": None, "mm_features": []}
            | data,
        )

    def step(
        self, names: Sequence[str], *, chunk: int = 8, depth: int | None = None, unseen: bool = False
    ) -> Tensor | None:
        """Run these requests, at most `chunk` tokens of a prompt each; the drafts that came, [B, width].

        `unseen`: without the speculator, which should not happen.
        """
        for name in sorted(self._gone):
            self.states.remove_request(name)
        self._gone.clear()
        new = [running.new for name in names if (running := self.requests[name]).new is not None]
        self.runner.add_requests(SimpleNamespace(scheduled_new_reqs=new))
        for name in names:
            self.requests[name].new = None
        if not names:
            return None
        depth = self.width if depth is None else depth
        batch, aux, rejected = self._forward(names, chunk)
        if unseen:
            return None
        drafts: Tensor = self.runner.speculator.propose(
            batch, None, None, torch.zeros(0), aux, None, rejected, None, None, None, None,
            num_speculative_tokens=depth,
        )  # fmt: skip
        if self.untrue is not None:
            raise self.untrue
        assert drafts.shape == (len(names), self.width)
        assert drafts.dtype is torch.int64
        assert 0 <= int(drafts.min()) <= int(drafts.max()) < VOCAB
        for row, name in enumerate(names):
            running = self.requests[name]
            slot = self.states.req_id_to_index[name]
            decoding = len(running.tokens) > self.states.prefill_len[slot]
            self.states.draft_tokens[slot] = drafts[row, :depth].tolist() if decoding else []
        kept = drafts.clone()
        drafts[:, depth:] = -1  # as the runner does
        return kept

    def _forward(self, names: Sequence[str], chunk: int) -> tuple[Any, list[Tensor], Tensor]:
        """Compute, verify, sample, and take in what came of it; the table is as `propose` finds it."""
        ids: list[int] = []
        rows: list[list[float]] = []
        rejected, scheduled, computed = [], [], []
        slots = [self.states.req_id_to_index[name] for name in names]
        for name, slot in zip(names, slots, strict=True):
            running = self.requests[name]
            start, truth = running.computed, running.tokens
            block = truth[start : start + chunk]
            last = start + len(block) == len(truth)
            if last:
                block = block + self.states.draft_tokens[slot][: LENGTH - 1 - len(truth)]
            run = truth[:start] + block
            known, good = len(truth), min(len(block), len(truth) - start)
            while last and len(truth) < LENGTH:
                truth.append(following(truth))
                if start + good >= len(run) or run[start + good] != truth[-1]:
                    break
                good += 1
            ids += block
            rows += [states(run, position) for position in range(start, start + len(block))]
            computed.append(start)
            scheduled.append(len(block))
            rejected.append(len(block) - good)
            running.computed = start + good
            self.states.num_computed_tokens.gpu[slot] = start + good
            sampled = torch.tensor(truth[known:], dtype=torch.int32)
            self.states.all_token_ids.gpu[slot, known : len(truth)] = sampled
        starts = np.concatenate([[0], np.cumsum(scheduled)]).astype(np.int32)
        padding = self.random.randrange(3)
        table = torch.tensor([*rows, *[[-1.0] * len(TAPS) * HIDDEN] * padding])
        batch = SimpleNamespace(
            req_ids=list(names),
            num_reqs=len(names),
            num_tokens=len(ids),
            idx_mapping=torch.tensor(slots, dtype=torch.int64),
            idx_mapping_np=np.array(slots, dtype=np.intp),
            query_start_loc_np=np.concatenate([starts, np.full(padding, len(ids), np.int32)]),
            num_scheduled_tokens=np.array(scheduled, dtype=np.int32),
            num_computed_tokens_np=np.array(computed, dtype=np.int32) + self.random.randrange(2),
            prefill_len_np=self.states.prefill_len[slots],
            input_ids=torch.tensor([*ids, *[VOCAB] * padding], dtype=torch.int32),
        )
        aux = [table[:, at : at + HIDDEN].contiguous() for at in range(0, len(TAPS) * HIDDEN, HIDDEN)]
        return batch, aux, torch.tensor(rejected, dtype=torch.int32)
