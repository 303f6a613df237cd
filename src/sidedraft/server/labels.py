"""Names of verifiers as metric labels: unique among those that are there, and few in a server's life."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping

MOST = 256
"""Different labels in a server's life: a monitoring system keeps a series for each of them, for ever."""

OTHER = "other"
"""Stands for the names of verifiers that come after those."""

_UNUSUAL = re.compile(r"[^A-Za-z0-9._:/-]+")


class Labels:
    """Not thread-safe."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._given: dict[int, str] = {}
        self._seen: set[str] = set()

    def assign(self, verifiers: Mapping[int, str]) -> Mapping[int, str]:
        """Labels for the verifiers that are there now: what they call themselves, by owner.

        Whoever has a label keeps it while it stays. The second of a name is NAME-2; when it goes its label is
        free again, so that verifiers that come and go do not make new ones.
        """
        self._given = {owner: label for owner, label in self._given.items() if owner in verifiers}
        for owner, name in verifiers.items():
            if owner not in self._given:
                self._given[owner] = self._free(clean(name))
        return self._given

    def _free(self, name: str) -> str:
        label = self._unused(name)
        if label not in self._seen:
            if len(self._seen) >= self._most:
                return self._unused(OTHER)
            self._seen.add(label)
        return label

    def _unused(self, name: str) -> str:
        taken = set(self._given.values())
        numbered = (name if count == 1 else f"{name}-{count}" for count in itertools.count(1))
        return next(label for label in numbered if label not in taken)


def clean(name: str) -> str:
    """A name that needs no quoting in any query; never empty."""
    return _UNUSUAL.sub("_", name) or "_"
