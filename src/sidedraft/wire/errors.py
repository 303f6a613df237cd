"""Error codes, and the one exception that this package raises for what a peer sent."""

from __future__ import annotations

from enum import StrEnum

MAX_VALUE_TEXT = 80
"""Characters of an offending value that are repeated in an error."""


class Code(StrEnum):
    """Why an advance, a message or a session was refused. The values travel; docs/protocol.md lists them."""

    # One request: its other advances are refused as well until it is opened again.
    GAP = "gap"
    """`first` is beyond the committed end: tokens between are missing."""
    UNKNOWN_REQUEST = "unknown_request"
    """An advance without an opening for a request the server does not hold."""
    STALE_GENERATION = "stale_generation"
    """A generation older than the one that is open."""
    OUT_OF_ORDER = "out_of_order"
    """A number that was applied already, or too far ahead to be held."""
    BAD_TOKEN = "bad_token"
    """A token id outside the target's vocabulary."""
    BAD_ROWS = "bad_rows"
    """Rows outside the advance, or of another size than agreed."""
    BAD_OPENING = "bad_opening"
    """Opening missing, misplaced, or at odds with the advance that carries it."""
    BAD_FIELD = "bad_field"
    """Any other field out of range."""
    CAPACITY = "capacity"
    """A limit of requests, memory or positions."""
    INTERNAL = "internal"
    """The server failed; nothing is wrong with the request."""

    # One message.
    MALFORMED = "malformed"
    """The header cannot be read: no msgpack, unknown type or field, wrong type, missing field."""
    BAD_PAYLOAD = "bad_payload"
    """The payload has another size than its header says, or stands where none belongs."""
    TOO_LARGE = "too_large"
    """Beyond an agreed limit."""
    UNEXPECTED = "unexpected"
    """A known message at the wrong time, in the wrong direction or on the wrong connection."""
    STALE_SESSION = "stale_session"
    """Of another session or another epoch than the current one. Dropped and counted."""

    # A session.
    UNKNOWN_SESSION = "unknown_session"
    """The server holds no such session (any more): say hello again."""
    VERSION = "version"
    """No common version."""
    MISMATCH = "mismatch"
    """Verifier and server disagree about the target or the draft."""
    IDENTITY = "identity"
    """Identity only partly known, and one side is strict."""
    NAMESPACE = "namespace"
    """No right to the namespace asked for."""
    NOT_READY = "not_ready"
    """The server loads or tests itself: say hello again later."""
    DRAINING = "draining"
    """The server is going away and takes no new sessions or requests."""


def shorten(text: str, limit: int = MAX_VALUE_TEXT) -> str:
    """`text` made printable, in at most `limit` characters, for logs and answers."""
    clean = "".join(c if c.isprintable() else "\ufffd" for c in text[:limit])
    return clean if len(text) <= limit else clean[: limit - 1] + "…"


class WireError(Exception):
    """A peer's message, or one request of it, cannot be used.

    `field`, `value` (as text, truncated) and `expected` say why. `request`, `generation` and `number` are
    set when the fault is confined to one advance or answer, and its ids can be trusted. One that is raised
    by decoding concerns the whole message.
    """

    def __init__(
        self,
        code: Code,
        field: str,
        value: object,
        expected: str,
        *,
        request: int | None = None,
        generation: int | None = None,
        number: int | None = None,
    ) -> None:
        super().__init__(code, field, value, expected)
        self.code = code
        self.field = field
        self.value = shorten(value if isinstance(value, str) else repr(value))
        self.expected = expected
        self.request = request
        self.generation = generation
        self.number = number

    @property
    def detail(self) -> str:
        """Field, value and what was expected, without the code."""
        return f"{self.field} is {self.value}, expected {self.expected}"

    def __str__(self) -> str:
        where = ""
        if self.request is not None:
            where = f" (request {self.request}, generation {self.generation}, number {self.number})"
        return f"{self.code}: {self.detail}{where}"
