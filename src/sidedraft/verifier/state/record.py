"""Our own record of a request's accepted tokens: what it is opened again from."""

from __future__ import annotations

import numpy as np

from sidedraft.wire.advance import Tokens


class TokenRecord:
    """Tokens `[0, end)` of one request, in a buffer that grows by doubling."""

    def __init__(self, prefix: Tokens) -> None:
        self._buffer = np.empty(max(64, 2 * len(prefix)), dtype=np.int32)
        self._buffer[: len(prefix)] = prefix
        self.end = len(prefix)

    def put(self, first: int, tokens: Tokens) -> None:
        """Keep `[0, first)` and append `tokens`; the caller has checked `first <= end`."""
        end = first + len(tokens)
        if end > len(self._buffer):
            grown = np.empty(2 * end, dtype=np.int32)
            grown[:first] = self._buffer[:first]
            self._buffer = grown
        self._buffer[first:end] = tokens
        self.end = end

    def prefix(self, end: int) -> Tokens:
        """A copy of tokens `[0, end)`: the record may be rewound before they are sent."""
        return self._buffer[:end].copy()
