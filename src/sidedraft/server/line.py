"""Requests that wait for the same kind of step, and whose turn it is: deficit round robin over their owners.

Every owner in line gets the same credit a round and pays with it what its requests cost, so that over time
all who wait get the same, whatever the sizes and numbers of their requests are (Shreedhar and Varghese,
"Efficient fair queuing using deficit round robin", 1996).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

Key = tuple[int, int]
"""(owner, request)."""


class Line:
    """Pure. While two owners wait, what they have paid differs by at most a credit and the cost of their
    dearest request; one who is alone is never held back."""

    def __init__(self, credit: int) -> None:
        """`credit`: what an owner gets a round, above 0, in the unit of the costs."""
        self._credit = credit
        self._requests: OrderedDict[int, OrderedDict[Key, None]] = OrderedDict()
        """By owner, the one whose turn it is first; each one's requests take turns as well."""
        self._left: dict[int, int] = {}
        self._paid_out: int | None = None
        """The owner who is first and has got this round's credit."""

    def __bool__(self) -> bool:
        return bool(self._requests)

    def __iter__(self) -> Iterator[Key]:
        for requests in self._requests.values():
            yield from requests

    def add(self, key: Key) -> None:
        """At the end of its owner's requests; an owner who is new at the end of the line."""
        owner = key[0]
        if owner not in self._requests:
            self._requests[owner] = OrderedDict()
            self._left[owner] = 0
        self._requests[owner][key] = None

    def remove(self, key: Key) -> None:
        """Without effect when it is not there. An owner without requests loses what is left of its credit."""
        owner = key[0]
        requests = self._requests.get(owner)
        if requests is None or key not in requests:
            return
        del requests[key]
        if not requests:
            del self._requests[owner], self._left[owner]
            if self._paid_out == owner:
                self._paid_out = None

    def first(self, cost: Callable[[Key], int], room: int | None = None) -> Key | None:
        """The request whose turn it is; its owner can pay for it. None when nobody waits, or when what stands
        first costs more than there is room for."""
        while self._requests:
            owner, requests = next(iter(self._requests.items()))
            key = next(iter(requests))
            price = cost(key)
            if room is not None and price > room:
                return None
            if self._paid_out != owner:
                self._left[owner] += self._credit
                self._paid_out = owner
            if price <= self._left[owner]:
                return key
            self._requests.move_to_end(owner)
            self._paid_out = None
        return None

    def pay(self, key: Key, cost: int) -> None:
        """The request has had its turn; its owner's next one follows."""
        owner = key[0]
        self._left[owner] -= cost
        self._requests[owner].move_to_end(key)
