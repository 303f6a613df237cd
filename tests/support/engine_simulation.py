"""An engine and the model of it, driven side by side and compared after every event."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

import numpy as np
import torch

from sidedraft.engine import Engine, InFlight, Work
from sidedraft.engine.storage import RowStorage
from sidedraft.wire.advance import Advance, Answer, Outcome
from support.engine_client import Client, Request, make_engine, random_aux, same_bits
from support.engine_model import EngineModel, ModelRequest
from support.fake_draft import FakeDraft, Seen, fake_shape

BLOCK = 16
MAX_DEPTH = 3
MAX_REQUESTS = 6
LONGEST = 1500

KINDS: dict[str, dict] = {
    "exact": {},
    "window": {"window": 24},
    # Too small for what is asked of it: rows may be missing, but never wrong ones shown.
    "tight": {"blocks": 9, "exact": False},
    "tight window": {"blocks": 6, "window": 40, "exact": False},
}
"""Arguments of `Simulation`."""


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


def watch_memory(engine: Engine) -> None:
    """No slot is written twice at once, nor the null block; no memory is handed out while it is written or
    read by a launch under way."""
    write, gather = engine._storage.write, engine._scratch.gather
    pool, take = engine._pool, engine._pool.take
    read: dict[int, set[int]] = {}

    def checked_write(slots: torch.Tensor, rows: torch.Tensor) -> None:
        assert len(slots.unique()) == len(slots)
        assert int(slots.min()) >= BLOCK
        write(slots, rows)

    def noted_gather(storage: RowStorage, batch: int, columns: int, query_rows: int) -> tuple:
        blocks = engine._scratch._host_slots[: batch * columns] // BLOCK
        read.setdefault(pool.launched, set()).update(blocks.tolist())
        return gather(storage, batch, columns, query_rows)

    def checked_take() -> int | None:
        block = take()
        assert block is None or pool.used[block] <= pool.finished
        assert not any(block in blocks for launch, blocks in read.items() if launch > pool.finished)
        return block

    engine._storage.write = checked_write
    engine._scratch.gather = noted_gather
    pool.take = checked_take


@dataclass(eq=False)
class Pair:
    """A request at the verifier, and in the model."""

    real: Request
    model: ModelRequest
    text: int


@dataclass
class Noted:
    """A work in flight, and what the model said when it was launched."""

    pair: Pair
    advance: Advance
    touched: range
    shown: dict[int, bytes]
    tokens: list[int]
    newest: bool = True


@dataclass(frozen=True)
class Sending:
    """How an advance is made: which part of its new tokens' rows travels, and the depth asked for."""

    skip: int = 0
    count: int = LONGEST
    depth: int = 0


class Simulation:
    """Several requests over one engine, up to two launches in flight. `exact`: the pool never fills, so that
    the model tells exactly which rows are present."""

    def __init__(self, *, blocks: int = 600, window: int | None = None, exact: bool = True) -> None:
        self.exact = exact
        self.draft = FakeDraft(fake_shape(max_depth=MAX_DEPTH, max_position=2048))
        self.engine = make_engine(
            self.draft, blocks=blocks, block_size=BLOCK, requests=MAX_REQUESTS, window=window
        )
        watch_memory(self.engine)
        self.client = Client(self.engine)
        self.model = EngineModel(BLOCK, window)
        self.pairs: list[Pair] = []
        self.ended: list[Pair] = []
        self.waiting: list[tuple[Pair, Work]] = []
        self.flights: list[tuple[InFlight, list[Noted]]] = []
        self.anchor = 100
        self.compared = 0
        """Proposals whose context was checked."""

    # -- events ------------------------------------------------------------------------------------------

    def open(
        self, text: int, first: int, count: int, sending: Sending, *, again: bool = False, **how
    ) -> None:
        """New, forked from a prefix that others have, or (`again`) an ended one resumed."""
        old = None
        if again and self.ended:
            pair = self.ended.pop()
            old, text = pair.real, pair.text
        real = self.client.open(tokens_of(text, 0, first), of=old, **how)
        seed = None if how.get("private") else ("default", how.get("context_key", b""))
        pair = Pair(real, ModelRequest(seed, how.get("lookup", True)), text)
        self.pairs.append(pair)
        self.send(pair, first, count, sending)

    def extend(self, pair: Pair, count: int, sending: Sending) -> None:
        """Accepted tokens: any number, so any number of drafts rejected."""
        self.send(pair, len(pair.real.tokens), count, sending)

    def rewind(self, pair: Pair, back: int, count: int, text: int, sending: Sending) -> None:
        """`first < committed`, with equal tokens or with another text's."""
        pair.text = text
        self.send(pair, max(0, len(pair.real.tokens) - back), count, sending)

    def release(self, pair: Pair) -> None:
        self.flush()  # a server releases after what it received before
        self.pairs.remove(pair)
        self.ended.append(pair)
        self.model.close(pair.model)
        pair.real.release()

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

    def finish(self) -> None:
        flight, noted = self.flights.pop(0)
        for answer, note in zip(self.engine.finish(flight), noted, strict=True):
            self._check_answer(answer, note)
            if note.pair in self.pairs:
                self.model.complete(note.pair.model, note.touched, flight.number)

    def flush(self) -> None:
        if self.waiting:
            while len(self.flights) > 1:
                self.finish()
            self.launch()
        while self.flights:
            self.finish()

    def end(self) -> None:
        """Let everything go; nothing may be left over."""
        self.flush()
        for pair in list(self.pairs):
            self.release(pair)
        stats = self.engine.stats()
        assert (stats.requests, stats.blocks_held, stats.blocks_pinned) == (0, 0, 0)
        assert stats.index == stats.blocks_kept
        if self.exact:
            assert stats.index == len(self.model.published)
            assert stats.rows_computed == self.draft.computed == self.model.computed
            assert stats.counters.rows_restored == self.model.restored

    def send(self, pair: Pair, first: int, count: int, sending: Sending) -> None:
        new = tokens_of(pair.text, first, max(0, min(count, LONGEST - first)))
        low = min(sending.skip, len(new))
        high = min(low + sending.count, len(new))
        self.anchor += 1
        work = pair.real.advance(
            new,
            first=first,
            depth=sending.depth,
            anchor=self.anchor,
            aux=random_aux(self.client.rng, high - low, self.client.width),
            rows_at=first + low,
        )
        self.waiting += [(pair, due) for due in self.client.sequencer.push(work)]

    # -- what is compared --------------------------------------------------------------------------------

    def _check_answer(self, answer: Answer, note: Noted) -> None:
        advance = note.advance
        assert answer.outcome is not Outcome.REFUSED, answer
        assert (answer.number, answer.committed) == (advance.number, len(note.tokens))
        if self.exact:
            assert answer.rows_present == len(note.shown)
            assert answer.context_start == min(note.shown, default=answer.committed)
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
            self._check_context(seen, note)

    def _check_context(self, seen: Seen, note: Noted) -> None:
        """In order, before the anchor, and each the row that was sent for a sequence of these tokens."""
        positions = seen.positions.tolist()
        self.compared += 1
        if self.exact:
            assert positions == sorted(note.shown)
            assert same_bits(seen.rows, rows_from(self.draft, note.shown))
            return
        assert positions == sorted(set(positions))
        assert not positions or 0 <= positions[0] <= positions[-1] < seen.anchor_position
        for position, row in zip(positions, seen.rows, strict=True):
            sent = self.model.sent_for(note.pair.model, note.tokens[: position + 1])
            assert any(same_bits(row[None], rows_from(self.draft, {position: aux})) for aux in sent)

    def check_memory(self) -> None:
        """Every row of every open request, and every published block, is what was written."""
        assert bool(self.engine._storage.rows[0].eq(0).all())
        assert self.engine.allocated_bytes <= self.engine.plan.kv_memory
        if not self.exact:
            return
        waiting = {pair.real.id for pair, _ in self.waiting}
        for pair in self.pairs:
            request = self.engine._requests.find(self.client.owner, pair.real.id)
            if request and pair.real.id not in waiting:
                aux = {p: row.aux for p, row in sorted(pair.model.rows.items())}
                slots = request.table.slots
                assert np.flatnonzero(slots).tolist() == list(aux)
                self._check_slots(slots[slots != 0], aux)
        for ((namespace, context_key), tokens), rows in self.model.published.items():
            chain, last = self.engine.chain, len(tokens) // BLOCK - 1
            seed = chain.seed(namespace.encode(), b"f32", self.client.target, context_key)
            key = chain.extend(seed, np.array(tokens, dtype=np.int32), 0, last + 1)[-1]
            start = self.engine._pool._index[key] * BLOCK
            slots = np.arange(start, start + BLOCK, dtype=np.int32)
            self._check_slots(slots, {last * BLOCK + i: row for i, row in enumerate(rows)})

    def _check_slots(self, slots: np.ndarray, aux: dict[int, bytes]) -> None:
        assert same_bits(self.engine._storage.read(slots), rows_from(self.draft, aux).flatten(1))

    def check_blocks(self) -> None:
        """Every block is free, kept, pinned or held by exactly those whose tables name it."""
        pool, requests = self.engine._pool, list(self.engine._requests._open.values())
        if self.exact:
            assert pool.published == len(self.model.published)
        held = Counter(int(block) for request in requests for block in request.table.blocks if block)
        assert len(held) == self.engine.stats().blocks_held
        assert all(pool._references[block] == count for block, count in held.items())
        assert pool._references.sum() == held.total()
        assert all(pool.is_published(block) for block, count in held.items() if count > 1)
        apart = [set(held), set(pool._kept), set(pool._free), set(pool._pinned)]
        assert sum(map(len, apart)) == len(set().union(*apart)) == pool.total
        assert {block: key for key, block in pool._index.items()} == {
            block: key for block, key in enumerate(pool._keys) if key is not None
        }
        for request in requests:
            slots = request.table.slots.reshape(-1, BLOCK)
            stands_in = np.where(slots == 0, 0, slots // BLOCK)
            assert ((stands_in == request.table.blocks[:, None]) | (slots == 0)).all()
            assert ((slots != 0).any(1) == (request.table.blocks != 0)).all()


def random_life(kind: str, seed: int, events: int) -> Simulation:
    """Drive a simulation of that kind at random, checking it after every event, to its end."""
    chance = random.Random(seed)
    simulation = Simulation(**KINDS[kind])

    def length() -> int:
        return chance.choice((0, 1, 2, 4, chance.randrange(70), chance.randrange(70)))

    def sending() -> Sending:
        skip = chance.choice((0, 0, 0, chance.randrange(20)))
        return Sending(skip, chance.choice((LONGEST, LONGEST, chance.randrange(40))), chance.randrange(4))

    for event in range(events):
        pairs, text = simulation.pairs, chance.randrange(3)
        dice = chance.random()
        if (dice < 0.2 or not pairs) and len(pairs) < MAX_REQUESTS:
            first = chance.choice((0, 16, 32, 48, chance.randrange(100)))
            how = {
                "context_key": chance.choice((b"", b"", b"adapter")),
                "private": chance.random() < 0.1,
                "lookup": chance.random() < 0.9,
            }
            simulation.open(text, first, length(), sending(), again=chance.random() < 0.5, **how)
        elif dice < 0.3:
            simulation.release(chance.choice(pairs))
        elif dice < 0.5:
            pair = chance.choice(pairs)
            text = chance.choice((pair.text, text))
            simulation.rewind(pair, chance.randrange(60), length(), text, sending())
        elif dice < 0.7:
            simulation.extend(chance.choice(pairs), length(), sending())
        elif dice < 0.8 and simulation.waiting and len(simulation.flights) < 2:
            simulation.launch()
        elif dice < 0.9 and simulation.flights:
            simulation.finish()
        else:
            simulation.flush()
        simulation.check_blocks()
        if event % 5 == 0:
            simulation.check_memory()
    simulation.end()
    return simulation
