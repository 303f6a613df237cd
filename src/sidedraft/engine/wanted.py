"""Blocks of prefixes that were not found when a request opened, and who waits for them.

Requests of one prefix often come together: the rows of the first are under way, perhaps on the other
connection, when the next one opens. What is published later is then still taken over.
"""

from __future__ import annotations

from sidedraft.engine.request import Request


class WantedBlocks:
    """Open requests by the keys they wait for. As many entries as their prefixes have blocks, at most."""

    def __init__(self) -> None:
        self._waiting: dict[bytes, set[Request]] = {}
        self._keys: dict[Request, dict[bytes, int]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    def want(self, request: Request, key: bytes, index: int) -> None:
        """The request has no block `index`, whose key this is."""
        self._waiting.setdefault(key, set()).add(request)
        self._keys.setdefault(request, {})[key] = index

    def published(self, key: bytes) -> list[tuple[Request, int]]:
        """Who waited for that key, each with the block's index; they wait no longer."""
        found = [(request, self._keys[request].pop(key)) for request in self._waiting.pop(key, ())]
        for request, _ in found:
            self._tidy(request)
        return found

    def forget(self, request: Request) -> None:
        """It waits for nothing any more."""
        for key in self._keys.pop(request, {}):
            waiting = self._waiting[key]
            waiting.discard(request)
            if not waiting:
                del self._waiting[key]

    def _tidy(self, request: Request) -> None:
        if not self._keys[request]:
            del self._keys[request]
