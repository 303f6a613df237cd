"""The base of all settings: structs whose fields are checked whenever one is built."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

_SHOWN = 80
"""Characters of a bad value that an error repeats."""


class SettingsError(ValueError):
    """A setting has a value it cannot have."""

    def __init__(self, field: str, value: object, expected: str) -> None:
        shown = repr(value)
        if len(shown) > _SHOWN:
            shown = shown[:_SHOWN] + "..."
        super().__init__(f"{field}: {shown} is not allowed; expected {expected}")
        self.field = field
        self.value = value
        self.expected = expected


@functools.cache
def _hints(cls: type[Settings]) -> dict[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    return {name: hints[name] for name in cls.__struct_fields__}


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A frozen struct that cannot be built with a value outside its fields' types and constraints.

    msgspec checks types when decoding only; a settings object is mostly built from flags, so that
    `__post_init__` applies the same checks to every way of building one.
    """

    def __post_init__(self) -> None:
        for name, hint in _hints(type(self)).items():
            value = getattr(self, name)
            try:
                msgspec.convert(value, hint)
            except msgspec.ValidationError as error:
                raise SettingsError(name, value, _expected(hint, error)) from None
        self.check()

    def check(self) -> None:
        """Rules between fields; raises `SettingsError`."""


def _expected(hint: Any, error: msgspec.ValidationError) -> str:
    """What a field wants, in words: its own description when it has one, else msgspec's reason."""
    if get_origin(hint) is Literal:
        return "one of " + ", ".join(str(choice) for choice in get_args(hint))
    for part in getattr(hint, "__metadata__", ()):
        if isinstance(part, msgspec.Meta) and part.description:
            return part.description
    for part in get_args(hint):  # the members of `X | None`
        if part is not NoneType and get_origin(hint) in (Union, UnionType):
            return _expected(part, error)
    return str(error).removeprefix("Expected ")


AnySettings = TypeVar("AnySettings", bound=Settings)


def build(cls: type[AnySettings], values: Mapping[str, Any]) -> AnySettings:
    """Settings from names and values of another source (a file, flags); unknown names are errors.

    Lists become tuples, as TOML and flags know no tuples.
    """
    known = cls.__struct_fields__
    for name in values:
        if name not in known:
            raise SettingsError(name, values[name], f"one of the settings {', '.join(known)}")
    return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in values.items()})
