"""For any sequence of events attention is given exactly the accepted rows that are present, in order."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sidedraft.engine import InFlight, Work
from sidedraft.wire.advance import Advance, Answer, Outcome
from support.engine_client import Client, Request, make_engine, random_aux, same_bits
from support.engine_model import EngineModel, ModelRequest
from support.fake_draft import FakeDraft, Seen, fake_shape

BLOCK = 16
LENGTHS = st.one_of(st.integers(0, 5), st.integers(0, 70))
MAX_DEPTH = 3


def token_at(text: int, position: int) -> int:
    """Texts 0-2 share their first 40 tokens, two of them 8 more."""
    if position < 40 or (position < 48 and text < 2):
        return position % 50
    return 50 + 10 * text + position % 10


def tokens_of(text: int, start: int, count: int) -> np.ndarray:
    return np.array([token_at(text, p) for p in range(start, start + count)], dtype=np.int32)


def rows_from(draft: FakeDraft, aux: dict[int, bytes]) -> torch.Tensor:
    """The K/V rows that the draft makes of these aux rows, in position order."""
    positions = sorted(aux)
    data = np.frombuffer(b"".join(aux[p] for p in positions), dtype=np.float32).copy()
    return draft.rows_of(
        torch.from_numpy(data).view(-1, draft.shape.row_width), torch.tensor(positions, dtype=torch.int64)
    )


@dataclass
class Noted:
    """A work in flight, and what the model said when it was launched."""

    pair: Pair
    advance: Advance
    touched: range
    shown: dict[int, bytes]
    tokens: list[int]
    newest: bool = True


@dataclass(eq=False)
class Pair:
    """A request at the verifier, and in the model."""

    real: Request
    model: ModelRequest
    text: int


class ContextMachine(RuleBasedStateMachine):
    """Several requests over one engine, up to two launches in flight, beside the model."""

    blocks = 600
    window: int | None = None

    @initialize()
    def start(self) -> None:
        self.draft = FakeDraft(fake_shape(max_depth=MAX_DEPTH, max_position=2048))
        self.engine = make_engine(
            self.draft, blocks=self.blocks, block_size=BLOCK, requests=6, window=self.window
        )
        self.client = Client(self.engine)
        self.model = EngineModel(BLOCK, self.window)
        self.pairs: list[Pair] = []
        self.ended: list[Pair] = []
        self.waiting: list[tuple[Pair, Work]] = []
        self.flights: list[tuple[InFlight, list[Noted]]] = []
        self.anchor = 100

    # -- events ------------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.pairs) < 6)
    @rule(
        data=st.data(),
        text=st.integers(0, 2),
        first=st.one_of(st.just(0), st.integers(0, 100), st.sampled_from([16, 32, 48, 64])),
        count=LENGTHS,
        key=st.sampled_from([b"", b"", b"adapter"]),
        private=st.sampled_from([False] * 5 + [True]),
        lookup=st.sampled_from([True] * 5 + [False]),
        again=st.booleans(),
    )
    def open(
        self,
        data: st.DataObject,
        text: int,
        first: int,
        count: int,
        key: bytes,
        private: bool,
        lookup: bool,
        again: bool,
    ) -> None:
        """New, forked from a prefix that others have, or (`again`) an ended one resumed."""
        old = None
        if again and self.ended:
            pair = self.ended.pop()
            old, text = pair.real, pair.text
        opening = {"context_key": key, "private": private, "lookup": lookup}
        real = self.client.open(tokens_of(text, 0, first), of=old, **opening)
        seed = None if private else ("default", key)
        pair = Pair(real, ModelRequest(seed, lookup), text)
        self.pairs.append(pair)
        self.send(data, pair, first, tokens_of(text, first, count))

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), count=LENGTHS)
    def extend(self, data: st.DataObject, count: int) -> None:
        """Accepted tokens: any number, so any number of drafts rejected."""
        pair = data.draw(st.sampled_from(self.pairs))
        first = len(pair.real.tokens)
        self.send(data, pair, first, tokens_of(pair.text, first, min(count, 1500 - first)))

    @precondition(lambda self: self.pairs)
    @rule(data=st.data(), back=st.integers(0, 80), count=LENGTHS, text=st.integers(0, 2))
    def rewind(self, data: st.DataObject, back: int, count: int, text: int) -> None:
        """`first < committed`, with equal tokens or with another text's."""
        pair = data.draw(st.sampled_from(self.pairs))
        first = max(0, len(pair.real.tokens) - back)
        pair.text = text
        self.send(data, pair, first, tokens_of(text, first, count))

    @precondition(lambda self: self.pairs)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        pair = data.draw(st.sampled_from(self.pairs))
        self.flush()  # a server releases after what it received before
        self.pairs.remove(pair)
        self.ended.append(pair)
        pair.real.release()

    @precondition(lambda self: self.waiting)
    @rule()
    def step(self) -> None:
        self.flush()

    @precondition(lambda self: self.waiting and len(self.flights) < 2)
    @rule()
    def launch(self) -> None:
        flight = self.engine.launch([work for _, work in self.waiting])
        noted: list[Noted] = []
        for pair, work in self.waiting:
            touched = self.model.apply(pair.model, work.advance, flight.number)
            for earlier in noted:
                earlier.newest &= earlier.pair is not pair
            shown = self.model.shown(pair.model)
            noted.append(Noted(pair, work.advance, touched, shown, pair.model.tokens))
        self.waiting = []
        self.flights.append((flight, noted))

    @precondition(lambda self: self.flights)
    @rule()
    def finish(self) -> None:
        flight, noted = self.flights.pop(0)
        for answer, note in zip(self.engine.finish(flight), noted, strict=True):
            self.check_answer(answer, note)
            if note.pair in self.pairs:
                self.model.complete(note.pair.model, note.touched, flight.number)
        self.check_memory()

    # -- helpers -----------------------------------------------------------------------------------------

    def send(self, data: st.DataObject, pair: Pair, first: int, new: np.ndarray) -> None:
        low = data.draw(st.integers(0, len(new)), "rows from")
        high = data.draw(st.sampled_from([len(new), len(new), low, (low + len(new)) // 2]), "rows to")
        aux = random_aux(self.client.rng, max(0, high - low), self.client.width)
        self.anchor += 1
        work = pair.real.advance(
            new,
            first=first,
            depth=data.draw(st.integers(0, MAX_DEPTH), "depth"),
            anchor=self.anchor,
            aux=aux,
            rows_at=first + low,
        )
        for due in self.client.sequencer.push(work):
            self.waiting.append((pair, due))

    def flush(self) -> None:
        if self.waiting:
            while len(self.flights) > 1:
                self.finish()
            self.launch()
        while self.flights:
            self.finish()

    def check_answer(self, answer: Answer, note: Noted) -> None:
        advance = note.advance
        assert answer.outcome is not Outcome.REFUSED, answer
        assert (answer.number, answer.committed) == (advance.number, len(note.tokens))
        self.check_presence(answer, note)
        if advance.depth == 0:
            assert answer.outcome is Outcome.INGESTED
        elif not note.newest:
            assert answer.outcome is Outcome.SUPERSEDED
        else:
            assert answer.outcome is Outcome.DRAFTED
            assert len(answer.tokens) == advance.depth
            seen = self.draft.seen[int(answer.tokens[0])]
            asked = (advance.next_token, answer.committed, advance.depth)
            assert (seen.anchor, seen.anchor_position, seen.depth) == asked
            assert len(seen.positions) == answer.rows_present
            self.check_context(seen, note)

    def check_memory(self) -> None:
        """Every row of every open request, and every published block, is what was written."""
        for pair in self.pairs:
            if request := self.engine._requests.find(self.client.owner, pair.real.id):
                aux = {p: row.aux for p, row in sorted(pair.model.rows.items())}
                slots = request.table.slots
                assert np.flatnonzero(slots).tolist() == list(aux)
                self.check_slots(slots[slots != 0], aux)
        for ((namespace, context_key), tokens), rows in self.model.published.items():
            chain, last = self.engine.chain, len(tokens) // BLOCK - 1
            seed = chain.seed(namespace.encode(), b"f32", self.client.target, context_key)
            key = chain.extend(seed, np.array(tokens, dtype=np.int32), 0, last + 1)[-1]
            start = self.engine._pool._index[key] * BLOCK
            slots = np.arange(start, start + BLOCK, dtype=np.int32)
            self.check_slots(slots, {last * BLOCK + i: row for i, row in enumerate(rows)})

    def check_slots(self, slots: np.ndarray, aux: dict[int, bytes]) -> None:
        expected = rows_from(self.draft, aux)
        assert same_bits(self.engine._storage.read(slots), expected.flatten(1))

    def check_presence(self, answer: Answer, note: Noted) -> None:
        assert answer.rows_present == len(note.shown)
        assert answer.context_start == min(note.shown, default=answer.committed)

    def check_context(self, seen: Seen, note: Noted) -> None:
        assert seen.positions.tolist() == sorted(note.shown)
        assert same_bits(seen.rows, rows_from(self.draft, note.shown))

    # -- what always holds -------------------------------------------------------------------------------

    @invariant()
    def blocks_are_accounted_for(self) -> None:
        pool = self.engine._pool
        stats = self.engine.stats()
        held = Counter(
            int(block)
            for request in self.engine._requests._open.values()
            for block in request.table.blocks
            if block
        )
        assert len(held) == stats.blocks_held
        assert all(pool._references[block] == count for block, count in held.items())
        assert pool._references.sum() == held.total()
        assert all(pool.is_published(block) for block, count in held.items() if count > 1)
        assert not set(pool._kept) & set(pool._free)
        assert not (set(pool._kept) | set(pool._free) | set(pool._pinned)) & set(held)
        assert {pool._index[key]: key for key in pool._index} == {
            block: key for block, key in enumerate(pool._keys) if key is not None
        }
        for request in self.engine._requests._open.values():
            slots = request.table.slots.reshape(-1, BLOCK)
            owner = np.where(slots == 0, 0, slots // BLOCK)
            assert ((owner == request.table.blocks[:, None]) | (owner == 0)).all()
            assert ((slots != 0).any(1) == (request.table.blocks != 0)).all()
        assert self.engine.allocated_bytes <= self.engine.plan.kv_memory

    @invariant()
    def the_null_row_is_zero(self) -> None:
        assert bool(self.engine._storage.rows[0].eq(0).all())

    def teardown(self) -> None:
        self.flush()
        for pair in list(self.pairs):
            pair.real.release()
        stats = self.engine.stats()
        assert (stats.requests, stats.blocks_held, stats.blocks_pinned) == (0, 0, 0)
        self.check_counts()

    def check_counts(self) -> None:
        stats = self.engine.stats()
        assert stats.index == stats.blocks_kept == len(self.model.published)
        assert stats.rows_computed == self.draft.computed == self.model.computed
        assert stats.counters.rows_restored == self.model.restored


class WindowedMachine(ContextMachine):
    window = 24


class TightMachine(ContextMachine):
    """A pool that cannot hold what is asked of it: rows may be missing, but never wrong ones shown."""

    blocks = 9

    def check_presence(self, answer: Answer, note: Noted) -> None:
        assert answer.rows_present <= answer.committed - answer.context_start

    def check_context(self, seen: Seen, note: Noted) -> None:
        """In order, before the anchor, and each the row that was sent for a sequence of these tokens."""
        positions = seen.positions.tolist()
        assert positions == sorted(set(positions))
        assert not positions or 0 <= positions[0] <= positions[-1] < seen.anchor_position
        for position, row in zip(positions, seen.rows, strict=True):
            sent = self.model.sent_for(note.pair.model, note.tokens[: position + 1])
            assert any(same_bits(row[None], rows_from(self.draft, {position: aux})) for aux in sent)

    def check_memory(self) -> None:
        """What is present cannot be told; what is shown is checked."""

    def check_counts(self) -> None:
        assert self.engine.stats().index == self.engine.stats().blocks_kept <= self.blocks


SETTINGS = settings(
    max_examples=30,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestContext = ContextMachine.TestCase
TestContext.settings = SETTINGS
TestWindowedContext = WindowedMachine.TestCase
TestWindowedContext.settings = SETTINGS
TestTightContext = TightMachine.TestCase
TestTightContext.settings = SETTINGS
