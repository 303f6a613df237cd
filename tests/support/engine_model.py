"""What an engine should show attention, by dictionaries: no block ids, no slots, no memory.

The model knows tokens, which aux row was sent for which position, and which full blocks were published. It
is exact for a pool that never fills; for one that does, `sent_for` bounds what may be shown.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

from sidedraft.wire.advance import Advance

Aux = bytes
Seed = tuple[str, bytes]
BlockName = tuple[Seed | int, tuple[int, ...]]
_serials = itertools.count()


@dataclass
class Row:
    aux: Aux
    launch: int
    """Which launch wrote it; 0 when it came from the index."""


@dataclass
class ModelRequest:
    seed: Seed | None
    """None: private."""
    lookup: bool
    tokens: list[int] = field(default_factory=list)
    rows: dict[int, Row] = field(default_factory=dict)
    wanted: dict[BlockName, int] = field(default_factory=dict)
    """Blocks of its prefix that were not there when it opened, by name, with their index."""
    serial: int = field(default_factory=lambda: next(_serials))


@dataclass
class EngineModel:
    block: int
    window: int | None = None
    published: dict[BlockName, list[Aux]] = field(default_factory=dict)
    _sent: dict[BlockName, set[Aux]] = field(default_factory=dict)
    _open: list[ModelRequest] = field(default_factory=list)
    restored: int = 0
    computed: int = 0

    def apply(self, request: ModelRequest, advance: Advance, launch: int) -> range:
        """Returns the blocks that rows were sent for."""
        new = advance.tokens.tolist()
        if advance.opening is not None:
            request.tokens = advance.opening.prefix.tolist()
            known = 0
        else:
            known = advance.first
            old = request.tokens[advance.first : advance.first + len(new)]
            known += next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), len(old))
        request.tokens = request.tokens[: advance.first] + new
        request.rows = {p: row for p, row in request.rows.items() if p < known}
        self._restore(request, known)
        if advance.opening is not None:
            self._open.append(request)
            self._want(request, advance.first // self.block)
        count = advance.row_count
        for i in range(count):
            position = advance.rows_at + i
            assert advance.rows is not None
            aux = advance.rows[i].tobytes()
            self._sent.setdefault(self._name(request, request.tokens[: position + 1]), set()).add(aux)
            if position not in request.rows:
                request.rows[position] = Row(aux, launch)
                self.computed += 1
        if count == 0:
            return range(0)
        return range(advance.rows_at // self.block, (advance.rows_at + count - 1) // self.block + 1)

    def complete(self, request: ModelRequest, touched: range, launch: int) -> None:
        """The launch that wrote these blocks is done."""
        for index in touched:
            places = self._places(index)
            rows = [request.rows.get(p) for p in places]
            if request.seed is None or places.stop > len(request.tokens):
                continue
            if all(row is not None and row.launch <= launch for row in rows):
                name = self._name(request, request.tokens[: places.stop])
                if name not in self.published:
                    self.published[name] = [row.aux for row in rows if row is not None]
                    self._hand_on(name)
        kept = self._lowest(request) // self.block * self.block
        request.rows = {p: row for p, row in request.rows.items() if p >= kept}

    def close(self, request: ModelRequest) -> None:
        """It waits for nothing any more."""
        self._open.remove(request)

    def shown(self, request: ModelRequest) -> dict[int, Aux]:
        """Context rows a proposal at the committed end is given, by position."""
        low = self._lowest(request)
        return {p: request.rows[p].aux for p in sorted(request.rows) if p >= low}

    def sent_for(self, request: ModelRequest, tokens: list[int]) -> set[Aux]:
        """Aux rows that anyone who shares with the request ever sent for the last of these tokens."""
        return self._sent.get(self._name(request, tokens), set())

    def _restore(self, request: ModelRequest, known: int) -> None:
        if request.seed is None or not request.lookup:
            return
        for index in self._absent(request, known // self.block):
            self._take_over(request, index)

    def _absent(self, request: ModelRequest, start: int) -> list[int]:
        """Full blocks from `start` on, in sight, of which the request has no row."""
        start = max(start, self._lowest(request) // self.block)
        return [
            index
            for index in range(start, len(request.tokens) // self.block)
            if not any(p in request.rows for p in self._places(index))
        ]

    def _take_over(self, request: ModelRequest, index: int) -> None:
        places = self._places(index)
        found = self.published.get(self._name(request, request.tokens[: places.stop]))
        if found is not None:
            request.rows |= {p: Row(aux, 0) for p, aux in zip(places, found, strict=True)}
            self.restored += self.block

    def _want(self, request: ModelRequest, end: int) -> None:
        if request.seed is not None and request.lookup:
            for index in self._absent(request, 0):
                if index < end:
                    name = self._name(request, request.tokens[: self._places(index).stop])
                    request.wanted[name] = index

    def _hand_on(self, name: BlockName) -> None:
        for request in self._open:
            index = request.wanted.pop(name, None)
            if index is None or index not in self._absent(request, index):
                continue
            if self._name(request, request.tokens[: self._places(index).stop]) == name:
                self._take_over(request, index)

    def _lowest(self, request: ModelRequest) -> int:
        return 0 if self.window is None else max(0, len(request.tokens) - self.window + 1)

    def _places(self, index: int) -> range:
        return range(index * self.block, (index + 1) * self.block)

    @staticmethod
    def _name(request: ModelRequest, tokens: list[int]) -> BlockName:
        return request.seed or request.serial, tuple(tokens)
