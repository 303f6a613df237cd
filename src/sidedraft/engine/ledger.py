"""The accepted tokens of one request and the keys of its blocks."""

from __future__ import annotations

import numpy as np

from sidedraft.engine.chain import BlockChain
from sidedraft.engine.work import Change
from sidedraft.wire.advance import NO_TOKENS, Tokens
from sidedraft.wire.errors import Code, WireError


class TokenLedger:
    """Applies advances to a token sequence and says what each one changed.

    Tokens at `limit` and beyond are counted, not kept: the draft has no rows there. `seed` None means that
    no keys are wanted.
    """

    def __init__(self, chain: BlockChain, seed: bytes | None, limit: int) -> None:
        self.end = 0
        self._chain = chain
        self._seed = seed
        self._limit = limit
        self._tokens: Tokens = NO_TOKENS
        self._keys: list[bytes] = []

    def open(self, prefix: Tokens, tokens: Tokens) -> Change:
        """Start with `prefix` and go on with `tokens`."""
        self._append(0, prefix)
        self._append(len(prefix), tokens)
        return self._changed(0)

    def apply(self, first: int, tokens: Tokens) -> Change:
        """Tokens `[first, first + n)` are these now, and nothing follows them.

        Raises `WireError` (gap) when tokens between the committed end and `first` are missing.
        """
        if first > self.end:
            raise WireError(Code.GAP, "first", first, f"at most the committed end {self.end}")
        kept = first + self._equal(first, tokens)
        self._append(kept, tokens[kept - first :])
        self.end = first + len(tokens)
        return self._changed(kept)

    def _equal(self, first: int, tokens: Tokens) -> int:
        """How many of `tokens` say again what stands at `first`."""
        span = min(self.end - first, len(tokens))
        known = max(0, min(span, self._limit - first))
        different = self._tokens[first : first + known] != tokens[:known]
        # Beyond the limit nothing was kept and no row depends on it: taken as equal.
        return int(different.argmax()) if different.any() else span

    def _append(self, at: int, tokens: Tokens) -> None:
        self.end = at + len(tokens)
        kept = min(self.end, self._limit)
        if kept <= at:
            return
        if kept > len(self._tokens):
            grown = np.empty(min(self._limit, max(256, kept, 2 * len(self._tokens))), dtype=np.int32)
            grown[:at] = self._tokens[:at]
            self._tokens = grown
        self._tokens[at:kept] = tokens[: kept - at]

    def _changed(self, kept: int) -> Change:
        first = min(self._chain.blocks_known(kept), len(self._keys))
        if self._seed is None:
            return Change(kept, self.end, first, [])
        del self._keys[first:]
        parent = self._keys[-1] if self._keys else self._seed
        until = self._chain.blocks_known(min(self.end, self._limit))
        keys = self._chain.extend(parent, self._tokens, first, until)
        self._keys += keys
        return Change(kept, self.end, first, keys)
