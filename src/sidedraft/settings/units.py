"""Byte sizes as people write them."""

from __future__ import annotations

import re

from sidedraft.settings.errors import SettingsError

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

SIZE = {"unit": "bytes"}
"""`msgspec.Meta.extra` of a field that may be given as text with a unit."""

_UNITS = {
    "": 1,
    "b": 1,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": 1 << 40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_SIZE = re.compile(r"([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([a-z]*)", re.IGNORECASE)


def parse_bytes(field: str, value: str | int) -> int:
    """A size such as `1GiB`, `512 MiB`, `2.5GB` or a plain number of bytes; `field` is named in the error."""
    expected = "a size in bytes such as 1GiB, 512MiB or 1000000"
    if isinstance(value, bool):
        raise SettingsError(field, value, expected)
    if isinstance(value, int):
        return value
    found = _SIZE.fullmatch(value.strip())
    unit = _UNITS.get(found[2].lower()) if found else None
    if found is None or unit is None:
        raise SettingsError(field, value, expected)
    return int(float(found[1]) * unit)


def format_bytes(count: int) -> str:
    """A size for people: `1.50 GiB`, `512 B`."""
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if count >= unit:
            return f"{count / unit:.2f} {name}"
    return f"{count} B"
