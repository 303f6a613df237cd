"""How far the target follows the drafts, seen from nothing but a request's next advance.

A draft of k tokens was given at a base: the anchor's position. The next advance begins with the anchor, and
what stands behind it was sampled by the target: the draft's tokens, as far as it accepted them. What it
sampled after them is that advance's own anchor, and not among its tokens.
"""

from __future__ import annotations

from collections import Counter

from sidedraft.wire.advance import Tokens


def accepted(draft: Tokens, base: int, anchor: int, first: int, tokens: Tokens) -> int | None:
    """Tokens of a draft that the target accepted, 0 to k; None when the advance does not tell.

    Args:
        draft: int32 [k], the first of them meant for position `base + 1`.
        base, anchor: where the draft was asked from: a position and the token there.
        first, tokens: of the next advance, int32 [n] at `[first, first + n)`.
    """
    # Lists: a handful of tokens, for every request of every step, is too little for numpy to pay.
    found = tokens[: 1 + len(draft)].tolist()
    if first != base or found[:1] != [anchor]:
        return None  # asked again from the same base, or rewound
    count = 0
    for drafted, sampled in zip(draft.tolist(), found[1:], strict=False):
        if drafted != sampled:
            break
        count += 1
    return count


class Acceptance:
    """Drafts judged so far."""

    def __init__(self) -> None:
        self._drafts: Counter[tuple[int, int]] = Counter()

    def add(self, drafted: int, accepted: int) -> None:
        """One more judged draft: its length, and how many of its tokens were accepted."""
        self._drafts[drafted, accepted] += 1

    @property
    def judged(self) -> int:
        """Drafts judged."""
        return self._drafts.total()

    @property
    def drafted(self) -> list[int]:
        """By position in the draft, from 0: judged drafts that had a token there."""
        return self._beyond(0, self._deepest)

    @property
    def accepted(self) -> list[int]:
        """By position in the draft: judged drafts whose token there was accepted. As long as `drafted`."""
        return self._beyond(1, self._deepest)

    @property
    def length(self) -> float | None:
        """Mean tokens that a step with a draft yields: those accepted and one more; None before the first."""
        return 1 + sum(self.accepted) / self.judged if self.judged else None

    @property
    def _deepest(self) -> int:
        return max((drafted for drafted, _ in self._drafts), default=0)

    def _beyond(self, column: int, positions: int) -> list[int]:
        """Drafts whose length (column 0) or accepted count (1) is above each position."""
        counts = [0] * (positions + 1)
        for pair, drafts in self._drafts.items():
            counts[pair[column]] += drafts
        return [sum(counts[position + 1 :]) for position in range(positions)]
