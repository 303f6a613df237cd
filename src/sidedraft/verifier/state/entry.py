"""One request's step as the state machine sees it: positions and tokens, and how many rows there are."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from sidedraft.wire.advance import Tokens


class SubmissionError(ValueError):
    """A submission contradicts itself, the target, or what was submitted before."""

    def __init__(self, request: Hashable, field: str, value: object, expected: str) -> None:
        super().__init__(f"request {request!r:.80}: {field} is {value!r:.80}; expected {expected}")
        self.field = field


@dataclass(slots=True, eq=False)
class Entry:
    """A checked submission without its rows (see `verifier.submission.Submission` for the fields)."""

    key: Hashable
    first: int
    tokens: Tokens
    next_token: int
    depth: int
    rows_at: int
    row_count: int
    horizon: int = 0
    """Prefix length at which the first draft will be wanted."""
    rows_skip: int = 0
    """Leading rows of the caller's that do not travel; `rows_at` and `row_count` are those that do."""
    prefix: Tokens | None = None
    context_key: bytes = b""
    private: bool = False

    @property
    def end(self) -> int:
        """The anchor's position: first position not covered."""
        return self.first + len(self.tokens)
