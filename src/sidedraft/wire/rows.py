"""How one row of context is laid out in bytes.

A plain row is the concatenation of the taps' states of one position, in ascending order of aux id. A
projected row is what the draft's context projection makes of that: as many values as the draft is wide.
Either kind travels in a number format: float32, bfloat16, float16, or fp8, which is float8 e4m3 (finite, no
infinities) followed by the row's scale, one float32: a value is its e4m3 number times the scale.

A projected row means nothing to another projection, so that the format's name carries the projection's width
and digest. All that a row depends on thereby stands in the name that a handshake agrees on and that seeds
every block's key, and a server with another draft does not know the name.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from sidedraft.wire.limits import MAX_WIDTH

ITEM_SIZES: Mapping[str, int] = MappingProxyType({"f32": 4, "bf16": 2, "f16": 2, "fp8": 1})
"""Bytes of one value by number format."""

SCALE_BYTES: Final = 4
"""Of a scaled row's float32 scale, behind its values."""

PROJECTED: Final = "projected"
PROJECTION_DIGITS: Final = 32
"""Hexadecimal digits of a projection's digest in a name: 128 bits."""

_TIED = re.compile(
    rf"({PROJECTED}-[a-z0-9]{{1,8}})\.([1-9][0-9]{{0,6}})\.([0-9a-f]{{{PROJECTION_DIGITS}}})\Z"
)


@dataclass(frozen=True, slots=True)
class Projection:
    """A draft's context projection as the wire knows it."""

    width: int
    """Values that it gives for a position."""
    digest: str
    """`PROJECTION_DIGITS` hexadecimal digits over its weights and what else its result depends on."""


@dataclass(frozen=True, slots=True)
class RowFormat:
    """An encoding of rows. Values are little-endian and contiguous."""

    kind: str
    """What an operator calls it: one of `KINDS`."""
    number: str
    """Its number format: a name of `ITEM_SIZES`."""
    projection: Projection | None = None
    """Whose rows these are; None for plain rows."""

    @property
    def name(self) -> str:
        """On the wire."""
        tied = self.projection
        return self.kind if tied is None else f"{self.kind}.{tied.width}.{tied.digest}"

    @property
    def scaled(self) -> bool:
        """A scale stands behind a row's values."""
        return self.number == "fp8"

    def values(self, aux_width: int) -> int:
        """Values of a row; `aux_width` is taps x the target's hidden size."""
        return aux_width if self.projection is None else self.projection.width

    def row_bytes(self, aux_width: int) -> int:
        """Bytes of a row; `aux_width` as in `values`."""
        size = self.values(aux_width) * ITEM_SIZES[self.number]
        return size + SCALE_BYTES if self.scaled else size


FORMATS: Mapping[str, RowFormat] = MappingProxyType({name: RowFormat(name, name) for name in ITEM_SIZES})
"""Every plain format this version can read and write, by name."""

KINDS: tuple[str, ...] = (*FORMATS, *(f"{PROJECTED}-{name}" for name in ITEM_SIZES))
"""Every kind of format this version can read and write."""


def of_kind(kind: str, projection: Projection | None = None) -> RowFormat:
    """The format of one of `KINDS`; a projected one is tied to `projection`.

    Raises ValueError for another kind, and for a projected one without a projection.
    """
    if kind in FORMATS:
        return FORMATS[kind]
    if kind not in KINDS:
        raise ValueError(f"kind: {kind!r} is not allowed; expected one of {', '.join(KINDS)}")
    if projection is None:
        raise ValueError(f"projection: None is not allowed; expected the one that {kind} rows come from")
    return RowFormat(kind, kind.removeprefix(f"{PROJECTED}-"), projection)


@functools.lru_cache(maxsize=64)
def find_format(name: str) -> RowFormat | None:
    """The format that a name on the wire means, or None when this version does not know it."""
    if name in FORMATS:
        return FORMATS[name]
    found = _TIED.match(name)
    if found is None or found[1] not in KINDS or int(found[2]) > MAX_WIDTH:
        return None
    return of_kind(found[1], Projection(int(found[2]), found[3]))
