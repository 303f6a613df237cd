"""Puts a request's advances, which come by two connections, back into their order.

The token side of the engine, run by the thread that receives: it orders, compares and hashes tokens so that
the engine's thread only handles rows.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from sidedraft.engine.chain import BlockChain
from sidedraft.engine.ledger import TokenLedger
from sidedraft.engine.work import Work
from sidedraft.wire.errors import Code, WireError

RequestId = tuple[int, int]
"""Owner and request."""


@dataclass(slots=True)
class _Sequence:
    generation: int
    expected: int = 0
    ledger: TokenLedger | None = None
    """None before the opening."""
    ended: bool = False
    """After a refusal: nothing more of this generation can be applied."""
    held: dict[int, Work] = field(default_factory=dict)


class Sequencer:
    """Releases works strictly by number, each with the change it makes to its request's tokens.

    A work that cannot be applied is released with `refusal` set, so that the engine answers it in turn; it
    ends its generation, and what follows is refused until the request is opened again. Numbers that were
    applied already are dropped and counted. Bounded: `max_requests` sequences, `held` works a sequence,
    and a few times as many remembered ends of requests.
    """

    def __init__(self, chain: BlockChain, *, max_requests: int, max_position: int, held: int = 256) -> None:
        self._chain = chain
        self._max_requests = max_requests
        self._max_position = max_position
        self._max_held = held
        self._sequences: dict[RequestId, _Sequence] = {}
        self._ended: OrderedDict[RequestId, int] = OrderedDict()
        self.duplicates = 0
        """Works dropped because their number was applied or held already."""

    def __len__(self) -> int:
        return len(self._sequences)

    def push(self, work: Work) -> list[Work]:
        """The works that are due now, in order; empty while a smaller number is missing.

        The first one of a new generation brings out, refused, what was held of the old one.
        """
        replaced = self._make_way(work)
        return replaced + self._enter(work)

    def _enter(self, work: Work) -> list[Work]:
        advance = work.advance
        sequence = self._current(work)
        if sequence is None:
            return [work]
        if advance.number < sequence.expected or advance.number in sequence.held:
            self.duplicates += 1
            return []
        if sequence.ended:
            self._refuse(work, self._orphaned(work))
            return [work]
        if advance.number - sequence.expected > self._max_held:
            expected = f"at most {sequence.expected + self._max_held}"
            self._refuse(work, WireError(Code.OUT_OF_ORDER, "number", advance.number, expected))
            return [work, *self._end(sequence)]
        sequence.held[advance.number] = work
        return self._drain(sequence)

    def skip(self, owner: int, request: int, generation: int, number: int) -> list[Work]:
        """That advance was refused before it came here: its generation ends; held works come out refused."""
        sequence = self._sequences.get((owner, request))
        if sequence is None or sequence.generation != generation or number < sequence.expected:
            return []
        return self._end(sequence)

    def release(self, owner: int, request: int, generation: int) -> list[Work]:
        """The request ended; what was held of it comes out refused, and works of it that are still on their
        way will be refused as stale."""
        key = (owner, request)
        sequence = self._sequences.get(key)
        if sequence is not None and sequence.generation > generation:
            return []
        self._sequences.pop(key, None)
        self._ended[key] = max(generation, self._ended.get(key, 0))
        self._ended.move_to_end(key)
        while len(self._ended) > 4 * self._max_requests:
            self._ended.popitem(last=False)
        return [] if sequence is None else self._end(sequence)

    def release_owner(self, owner: int) -> None:
        """The session ended: everything about it is forgotten."""
        for key in [key for key in self._sequences if key[0] == owner]:
            del self._sequences[key]
        for key in [key for key in self._ended if key[0] == owner]:
            del self._ended[key]

    def _make_way(self, work: Work) -> list[Work]:
        """End the sequence that a new generation takes the place of."""
        sequence = self._sequences.get((work.owner, work.advance.request))
        if sequence is None or work.advance.generation <= sequence.generation:
            return []
        return self._end(sequence)

    def _current(self, work: Work) -> _Sequence | None:
        """The sequence that the work belongs to, started if need be; None when it was refused."""
        advance = work.advance
        key = (work.owner, advance.request)
        sequence = self._sequences.get(key)
        oldest = sequence.generation if sequence is not None else self._ended.get(key, -1) + 1
        if advance.generation < oldest:
            self._refuse(
                work, WireError(Code.STALE_GENERATION, "generation", advance.generation, f">= {oldest}")
            )
            return None
        if sequence is None and len(self._sequences) >= self._max_requests:
            self._refuse(
                work, WireError(Code.CAPACITY, "request", advance.request, f"{self._max_requests} open")
            )
            return None
        if sequence is None or advance.generation > sequence.generation:
            sequence = self._sequences[key] = _Sequence(advance.generation)
        return sequence

    def _drain(self, sequence: _Sequence) -> list[Work]:
        due: list[Work] = []
        while (work := sequence.held.pop(sequence.expected, None)) is not None:
            sequence.expected += 1
            due.append(work)
            try:
                self._apply(sequence, work)
            except WireError as error:
                self._refuse(work, error)
                return due + self._end(sequence)
        return due

    def _apply(self, sequence: _Sequence, work: Work) -> None:
        advance, opening = work.advance, work.advance.opening
        if advance.number > 0 and opening is None and sequence.ledger is not None:
            work.change = sequence.ledger.apply(advance.first, advance.tokens)
            return
        if advance.number > 0 or opening is None:
            raise WireError(
                Code.BAD_OPENING, "opening", opening is not None, "one with number 0, and only there"
            )
        if len(opening.prefix) != advance.first:
            expected = f"{advance.first} tokens, as first says"
            raise WireError(Code.BAD_OPENING, "prefix", len(opening.prefix), expected)
        seed = None
        if not opening.private:
            names = (work.namespace.encode(), work.row_format.encode())
            seed = self._chain.seed(*names, work.target_key, opening.context_key)
        sequence.ledger = TokenLedger(self._chain, seed, self._max_position)
        work.change = sequence.ledger.open(opening.prefix, advance.tokens)

    def _end(self, sequence: _Sequence) -> list[Work]:
        """Nothing more of this generation can be applied: what is held comes out refused, in order."""
        held = [sequence.held[number] for number in sorted(sequence.held)]
        sequence.held.clear()
        sequence.ledger, sequence.ended = None, True
        for work in held:
            self._refuse(work, self._orphaned(work))
        return held

    @staticmethod
    def _orphaned(work: Work) -> WireError:
        expected = "an open request; an earlier advance of this generation was refused"
        return WireError(Code.UNKNOWN_REQUEST, "request", work.advance.request, expected)

    @staticmethod
    def _refuse(work: Work, error: WireError) -> None:
        advance = work.advance
        error.request, error.generation, error.number = advance.request, advance.generation, advance.number
        work.refusal = error
