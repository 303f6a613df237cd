"""How one row of aux states is laid out in bytes.

A row is the concatenation of the taps' states of one position, in ascending order of aux id: `width` values.
A format that keeps more than the values (scales) adds its bytes in `row_bytes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class RowFormat:
    """An agreed encoding of rows. Values are little-endian and contiguous."""

    name: str
    itemsize: int
    """Bytes of one value."""

    def row_bytes(self, width: int) -> int:
        """Bytes of a row of `width` values."""
        return width * self.itemsize


FORMATS: Mapping[str, RowFormat] = MappingProxyType(
    {f.name: f for f in (RowFormat("f32", 4), RowFormat("bf16", 2), RowFormat("f16", 2))}
)
"""Every format this version can read and write, by name."""
