"""What a step gives for one request: a draft, or the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from sidedraft.wire.advance import Tokens


class Reason(StrEnum):
    """Why a request got no draft in a step. None of them is an error."""

    UNASKED = "unasked"
    """No draft was wanted: depth 0."""
    OPEN = "open"
    """The breaker is open: nobody waits until the server is known to answer in time."""
    LATE = "late"
    """Asked, and not answered by the deadline."""
    BEHIND = "behind"
    """An earlier answer was late; the server has not caught up with the request yet."""
    LOST = "lost"
    """The server's state of the request is uncertain; it waits for its turn to be opened again."""
    REFUSED = "refused"
    """The server refused the advance."""
    EXPIRED = "expired"
    """The server found the budget used up and did not compute a draft."""
    SUPERSEDED = "superseded"
    """A later step of the same request was submitted before this one was answered."""
    NO_DRAFT = "no_draft"
    """The draft's family cannot draft from the context it has."""
    BAD_REPLY = "bad_reply"
    """The reply failed a check of ours (ids out of range, wrong length, wrong base)."""
    BEYOND = "beyond"
    """The request is longer than the draft's context, or does not fit the agreed message sizes."""
    FULL = "full"
    """The server holds as many requests of ours as was agreed."""
    RELEASED = "released"
    """The request was released before the answer came."""
    CLOSED = "closed"
    """The drafter was closed."""


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """Draft tokens of one request."""

    tokens: Tokens
    """Target ids, int32 [k], 1 <= k <= the depth asked; the first stands after the anchor."""
    confidence: npt.NDArray[np.float32] | None = None
    """Estimated acceptance of each token, float32 [k], where the family has it."""
    context_start: int = 0
    """First position whose context row the server had."""
    rows_present: int = 0
    """Context rows it had; fewer than positions when there are holes."""


@dataclass(frozen=True, slots=True)
class NoDraft:
    """No draft for this request in this step; the engine goes on without."""

    reason: Reason
    detail: str = ""
    """The server's words, when it gave some."""


Outcome = Draft | NoDraft
