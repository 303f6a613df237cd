"""How far the target follows the drafts, seen from nothing but a request's next advance.

A draft of k tokens was given at a base: the anchor's position. The next advance begins with the anchor, and
what stands behind it was sampled by the target: the draft's tokens, as far as it accepted them. What it
sampled after them is that advance's own anchor, and not among its tokens.
"""

from __future__ import annotations

import numpy as np

from sidedraft.wire.advance import Tokens


def accepted(draft: Tokens, base: int, anchor: int, first: int, tokens: Tokens) -> int | None:
    """Tokens of a draft that the target accepted, 0 to k; None when the advance does not tell.

    Args:
        draft: int32 [k], the first of them meant for position `base + 1`.
        base, anchor: where the draft was asked from: a position and the token there.
        first, tokens: of the next advance, int32 [n] at `[first, first + n)`.
    """
    judged = first == base and len(tokens) > 0 and int(tokens[0]) == anchor
    if not judged:
        return None  # asked again from the same base, or rewound
    followed = min(len(draft), len(tokens) - 1)
    differs = np.flatnonzero(draft[:followed] != tokens[1 : 1 + followed])
    return int(differs[0]) if len(differs) else followed


class Acceptance:
    """Drafts judged so far, by position in the draft. Positions count from 0."""

    def __init__(self) -> None:
        self.drafted: list[int] = []
        """Judged drafts that had a token at this position."""
        self.accepted: list[int] = []
        """Judged drafts whose token at this position was accepted; as long as `drafted`."""

    def add(self, drafted: int, accepted: int) -> None:
        """One more judged draft: its length, and how many of its tokens were accepted."""
        missing = drafted - len(self.drafted)
        self.drafted += [0] * missing
        self.accepted += [0] * missing
        for position in range(drafted):
            self.drafted[position] += 1
            self.accepted[position] += position < accepted

    @property
    def judged(self) -> int:
        """Drafts judged."""
        return self.drafted[0] if self.drafted else 0

    @property
    def length(self) -> float | None:
        """Mean tokens that a step with a draft yields: those accepted and one more; None before the first."""
        return 1 + sum(self.accepted) / self.judged if self.judged else None
