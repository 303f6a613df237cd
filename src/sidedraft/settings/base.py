"""The base of all settings: structs whose fields are checked whenever one is built."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec

from sidedraft.settings.errors import SettingsError
from sidedraft.settings.units import SIZE, parse_bytes


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
            _check(name, getattr(self, name), hint)
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


def _check(name: str, value: Any, hint: Any) -> None:
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError as error:
        raise SettingsError(name, value, _expected(hint, error)) from None


AnySettings = TypeVar("AnySettings", bound=Settings)


def build(cls: type[AnySettings], values: Mapping[str, Any]) -> AnySettings:
    """Settings from names and values of another source (a file, flags); unknown names are errors.

    Such sources have no tuples and may know text only: lists become tuples, and text given for a number is
    read as one, sizes with their units.
    """
    return cls(**{name: _known(cls, name, value) for name, value in values.items()})


def check_each(cls: type[Settings], values: Mapping[str, Any]) -> list[SettingsError]:
    """What is wrong with each value by itself, where `build` stops at the first; rules between fields are
    left to it."""
    errors = []
    for name, value in values.items():
        try:
            _check(name, _known(cls, name, value), _hints(cls)[name])
        except SettingsError as error:
            errors.append(error)
    return errors


def _known(cls: type[Settings], name: str, value: Any) -> Any:
    hints = _hints(cls)
    if name not in hints:
        raise SettingsError(name, value, f"one of the settings {', '.join(hints)}")
    return _read(name, value, hints[name])


def _read(name: str, value: Any, hint: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, str):
        if _is_size(hint):
            return parse_bytes(name, value)
        try:
            return msgspec.convert(value, hint, strict=False)
        except msgspec.ValidationError:
            return value  # the constructor says what is wrong with it
    return value


def _is_size(hint: Any) -> bool:
    metadata = getattr(hint, "__metadata__", ())
    return any(isinstance(part, msgspec.Meta) and part.extra == SIZE for part in metadata)
