"""Header frames: which types an end sends and understands, and msgpack to and from them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum

import msgspec

from sidedraft.wire import messages as m
from sidedraft.wire.batch import Advances, Answers
from sidedraft.wire.errors import Code, WireError, shorten
from sidedraft.wire.limits import MAX_HEADER
from sidedraft.wire.payload import Frame

ToServer = m.Hello | Advances | m.Heartbeat | m.Report | m.Release | m.Goodbye
ToVerifier = m.Welcome | m.Refusal | Answers | m.Pulse | m.Credit | m.Goodbye | m.Failure
Header = ToServer | ToVerifier


class End(Enum):
    """Which end of a session something belongs to."""

    VERIFIER = "verifier"
    SERVER = "server"

    @property
    def peer(self) -> End:
        return End.SERVER if self is End.VERIFIER else End.VERIFIER


class Peek(msgspec.Struct, frozen=True):
    """What a header says of itself before it is read properly. Only types are checked."""

    type: str
    session: int = 0
    epoch: int = 0
    protocol: int = 0


UNDERSTOOD: dict[End, tuple[type[m.Message], ...]] = {
    End.SERVER: (m.Hello, Advances, m.Heartbeat, m.Report, m.Release, m.Goodbye),
    End.VERIFIER: (m.Welcome, m.Refusal, Answers, m.Pulse, m.Credit, m.Goodbye, m.Failure),
}
"""Header types by the end that receives them."""

_decoders: dict[End, msgspec.msgpack.Decoder[Header]] = {
    End.SERVER: msgspec.msgpack.Decoder(ToServer),
    End.VERIFIER: msgspec.msgpack.Decoder(ToVerifier),
}
_peek = msgspec.msgpack.Decoder(Peek)
_encode = msgspec.msgpack.Encoder().encode

_NAMES = {end: {str(kind.__struct_config__.tag) for kind in kinds} for end, kinds in UNDERSTOOD.items()}

# msgspec says "Expected `int`, got `str` - at `$.first[3]`", "... - at `key` in `$.counts`", or "Object
# missing required field `first`".
_WRONG = re.compile(
    r"Expected (?P<expected>.+?)(?:, got (?P<got>.+?))?(?: - at `(?:key` in `)?(?P<path>.*)`)?"
)
_FIELD = re.compile(r"Object (?P<fault>contains unknown|missing required) field `(?P<field>[^`]*)`.*")


def encode(header: m.Message) -> bytes:
    """The header's frame.

    Raises:
        WireError: `too_large`, more than `MAX_HEADER` bytes: send fewer advances in one message; or
            `bad_field`, an integer that msgpack cannot hold.
    """
    try:
        data = _encode(header)
    except OverflowError:
        raise WireError(Code.BAD_FIELD, name(header), "an integer too large", "64 bits at most") from None
    if len(data) > MAX_HEADER:
        raise _too_large(len(data))
    return data


def decode(data: memoryview, end: End) -> Header:
    """The header in a frame that reached `end`.

    Raises:
        WireError: `too_large`; `malformed`; or `version`, a hello of another major.
    """
    if data.nbytes > MAX_HEADER:
        raise _too_large(data.nbytes)
    try:
        return _decoders[end].decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise _explain(error, data, end) from None


def peek(frames: Sequence[Frame]) -> Peek | None:
    """Type, session and epoch of a message from a peer not yet known; None when they cannot be read.

    A listener uses it to find the session that a new bulk connection belongs to; the message must still be
    decoded by that session's codec.
    """
    if not frames or (data := memoryview(frames[0])).nbytes > MAX_HEADER:
        return None
    try:
        return _peek.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        return None


def name(header: m.Message | type[m.Message]) -> str:
    """A message's tag on the wire."""
    return str(header.__struct_config__.tag)


def _too_large(size: int) -> WireError:
    return WireError(Code.TOO_LARGE, "header", f"{size} bytes", f"at most {MAX_HEADER} bytes")


def _explain(error: Exception, data: memoryview, end: End) -> WireError:
    """msgspec's reason in our terms: what is wrong with the header as a whole comes before its fields."""
    seen = peek([data])
    if seen is not None and seen.type not in _NAMES[end]:
        known = Code.UNEXPECTED if seen.type in _NAMES[end.peer] else Code.MALFORMED
        return WireError(known, "type", seen.type, f"one of {', '.join(sorted(_NAMES[end]))}")
    if seen is not None and seen.type == "hello" and seen.protocol != m.PROTOCOL:
        return WireError(Code.VERSION, "hello.protocol", seen.protocol, f"{m.PROTOCOL}")
    where = "header" if seen is None else seen.type
    if found := _FIELD.fullmatch(str(error)):
        unknown = found["fault"] == "contains unknown"
        value, expected = ("present", "absent: not known") if unknown else ("absent", "present")
        return WireError(Code.MALFORMED, f"{where}.{shorten(found['field'])}", value, expected)
    if found := _WRONG.fullmatch(str(error)):
        path = (found["path"] or "").removeprefix("$")
        return WireError(
            Code.MALFORMED, where + shorten(path), found["got"] or "something else", found["expected"]
        )
    return WireError(Code.MALFORMED, where, f"unreadable ({error})", "a msgpack map")
