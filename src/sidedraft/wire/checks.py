"""Rules on columns: every broken one is found at once, the first per row is kept.

A batch is checked column by column, so that its cost is not that of a Python loop, and a bad row spoils
nothing but itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from sidedraft.wire.errors import Code, WireError
from sidedraft.wire.limits import MAX_ID

Column = npt.NDArray[np.int64]
"""One value a row of the batch, shape [n]."""
Passed = npt.NDArray[np.bool_]
"""Which rows obey a rule, shape [n]."""


def column(values: Sequence[int]) -> Column:
    """Integers as int64 [n]. What does not fit becomes -1, which no rule allows, so only its row suffers."""
    try:
        return np.array(values, dtype=np.int64)
    except OverflowError:
        return np.array([v if v <= MAX_ID else -1 for v in values], dtype=np.int64)


def same_length(header: msgspec.Struct, limit: int) -> int:
    """The common length of a header's columns, 1 to `limit`; else the message cannot be read at all."""
    lengths = {
        name: len(values)
        for name in header.__struct_fields__
        if isinstance(values := getattr(header, name), list)
    }
    first, count = next(iter(lengths.items()))
    if count > limit:
        raise WireError(Code.TOO_LARGE, first, f"{count} rows", f"1 to {limit} rows")
    for name, length in lengths.items():
        if length != count or count == 0:
            expected = f"{count} rows, as {first} has" if count else f"1 to {limit} rows"
            raise WireError(Code.MALFORMED, name, f"{length} rows", expected)
    return count


class RowErrors:
    """The first broken rule of each row of a batch."""

    def __init__(self, requests: Sequence[int], generations: Sequence[int], numbers: Sequence[int]) -> None:
        self._ids = (requests, generations, numbers)
        self._errors: dict[int, WireError] = {}
        for name, values in zip(("request", "generation", "number"), self._ids, strict=True):
            self.require(in_range(column(values), 0, MAX_ID), name, values, f"0 to {MAX_ID}")

    def require(
        self,
        passed: Passed,
        field: str,
        values: Sequence[object] | npt.NDArray[np.generic],
        expected: str | Callable[[int], str],
        code: Code = Code.BAD_FIELD,
    ) -> None:
        """Refuse the rows where `passed` [n] is False, showing `values[row]`."""
        if passed.all():
            return
        for row in np.flatnonzero(~passed).tolist():
            if row not in self._errors:
                text = expected if isinstance(expected, str) else expected(row)
                self.add(row, code, field, values[row], text)

    def require_values(
        self,
        passed: Passed,
        field: str,
        values: npt.NDArray[np.generic],
        begins: Column,
        expected: str,
        code: Code = Code.BAD_FIELD,
    ) -> None:
        """Refuse the rows that own a value where `passed` [m] is False.

        Row i owns the values `[begins[i], begins[i + 1])`.
        """
        bad = np.flatnonzero(~passed)
        owners = np.searchsorted(begins, bad, side="right") - 1
        for row, place in zip(*np.unique(owners, return_index=True), strict=True):
            if int(row) not in self._errors:
                self.add(int(row), code, field, values[bad[place]].item(), expected)

    def add(self, row: int, code: Code, field: str, value: object, expected: str) -> None:
        """Refuse one row. A row whose ids are themselves out of range cannot be named in an answer."""
        request, generation, number = (ids[row] for ids in self._ids)
        error = WireError(code, field, value, expected)
        if all(0 <= i <= MAX_ID for i in (request, generation, number)):
            error.request, error.generation, error.number = request, generation, number
        self._errors.setdefault(row, error)

    def refuse_all(self, count: int, code: Code, field: str, value: object, expected: str) -> None:
        """Refuse every row: the payload cannot be divided among them."""
        for row in range(count):
            self.add(row, code, field, value, expected)

    def __contains__(self, row: int) -> bool:
        return row in self._errors

    def in_order(self) -> list[WireError]:
        return [self._errors[row] for row in sorted(self._errors)]


def in_range(values: Column, low: int, high: int) -> Passed:
    """bool [n]: inside the closed range."""
    passed: Passed = (values >= low) & (values <= high)
    return passed
