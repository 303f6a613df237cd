"""What two versions of the protocol may say to each other.

A *major* (`messages.PROTOCOL`) is understood only by itself. Within a major, `Hello` and `Refusal`
never change, and a `Welcome` carries only what belongs to the minor it states; other messages gain fields and
new messages appear, each belonging to a minor version or to a named feature, and only what was agreed may be
sent. A field added later is declared
`T | UnsetType = UNSET`, so that it is absent from the bytes unless it is set, and is entered in `ADDED`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeVar

import msgspec
from msgspec import UNSET

from sidedraft.wire import messages as m
from sidedraft.wire.batch import Timings
from sidedraft.wire.errors import Code, WireError


@dataclass(frozen=True, slots=True)
class Since:
    """What must have been agreed before something may be sent: a minor, or a feature when named."""

    minor: int = 0
    feature: str = ""

    def allowed(self, minor: int, features: Collection[str]) -> bool:
        return self.feature in features if self.feature else minor >= self.minor

    def __str__(self) -> str:
        return f"feature {self.feature}" if self.feature else f"minor {self.minor}"


Part = TypeVar("Part", bound=msgspec.Struct)

Added = Mapping[type[msgspec.Struct], Mapping[str, Since]]
"""Message type -> field -> since when; the field name "" stands for the message itself."""

ADDED: Added = MappingProxyType(
    {
        m.Report: {"": Since(minor=1)},
        m.Welcome: {"window": Since(minor=2), "retain": Since(minor=2)},
        Timings: {"slices": Since(minor=2)},
    }
)
"""Everything that is not in minor 0."""


def common_minor(ours: tuple[int, int], theirs: tuple[int, int]) -> int | None:
    """The highest minor in both inclusive ranges, or None."""
    highest = min(ours[1], theirs[1])
    return highest if highest >= max(ours[0], theirs[0]) else None


def common_features(ours: Sequence[str], theirs: Collection[str]) -> tuple[str, ...]:
    """Features both know, in our order. A feature only one side knows is ignored, never an error."""
    return tuple(name for name in ours if name in theirs)


def understood(
    kind: type[msgspec.Struct], minor: int, features: Collection[str], added: Added = ADDED
) -> bool:
    """Whether a whole message of this type may be sent under what was agreed."""
    since = added.get(kind, {}).get("")
    return since is None or since.allowed(minor, features)


def check_agreed(
    message: msgspec.Struct, minor: int, features: Collection[str], added: Added = ADDED
) -> None:
    """Refuse a message that uses what was not agreed, in itself or in a struct that it contains.

    Raises:
        WireError: `malformed`, naming the field and what it belongs to.
    """
    for field, since in added.get(type(message), {}).items():
        used = field == "" or getattr(message, field) is not UNSET
        if used and not since.allowed(minor, features):
            name = field or str(type(message).__struct_config__.tag)
            raise WireError(Code.MALFORMED, name, "present", f"absent: {since} was not agreed")
    for field in message.__struct_fields__:
        part = getattr(message, field)
        if isinstance(part, msgspec.Struct):
            check_agreed(part, minor, features, added)


def as_agreed(part: Part, minor: int, features: Collection[str], added: Added = ADDED) -> Part:
    """The same, without the fields that were not agreed."""
    beyond = {
        field: UNSET
        for field, since in added.get(type(part), {}).items()
        if not since.allowed(minor, features)
    }
    return msgspec.structs.replace(part, **beyond) if beyond else part
