"""Rules on the columns of a batch: every broken one is found at once, the first per row is kept.

Rules run over whole columns, so that their cost is not that of a Python loop, and a bad row spoils nothing
but itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from sidedraft.wire.errors import Code, WireError
from sidedraft.wire.limits import MAX_ID

Column = npt.NDArray[np.int64]
"""One value a row of the batch, shape [n]."""
Passed = npt.NDArray[np.bool_]
"""Which rows, or values, obey a rule."""


class Range(NamedTuple):
    """The closed range of a column, and the code of a row outside it."""

    low: int
    high: int
    code: Code = Code.BAD_FIELD


IDS: Mapping[str, Range] = {name: Range(0, MAX_ID) for name in ("request", "generation", "number")}
"""The columns that name what a row is about."""


class Columns:
    """The integer columns of a header, by name."""

    def __init__(self, columns: Mapping[str, list[int]]) -> None:
        self.lists = columns
        self._place = {name: i for i, name in enumerate(columns)}
        rows = list(columns.values())
        try:
            self.table: npt.NDArray[np.int64] = np.array(rows, dtype=np.int64)
        except OverflowError:
            # What does not fit becomes -1, which no range allows, so that only its row suffers.
            fitting = [[v if v <= MAX_ID else -1 for v in row] for row in rows]
            self.table = np.array(fitting, dtype=np.int64)

    def __getitem__(self, name: str) -> Column:
        values: Column = self.table[self._place[name]]
        return values


def same_length(header: msgspec.Struct, limit: int) -> int:
    """The common length of a header's columns, 1 to `limit`.

    Raises:
        WireError: `malformed` or `too_large`; the message cannot be divided into rows.
    """
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

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._errors: dict[int, WireError] = {}

    def require_ranges(self, ranges: Mapping[str, Range]) -> None:
        """Refuse rows with a value outside its column's range; the first column that is wrong is named.

        `ranges` has the columns' names in the columns' order.
        """
        low = np.array([[r.low] for r in ranges.values()], dtype=np.int64)
        high = np.array([[r.high] for r in ranges.values()], dtype=np.int64)
        table = self._columns.table
        passed = (table >= low) & (table <= high)
        if passed.all():
            return
        for name, (least, most, code), ok in zip(ranges, ranges.values(), passed, strict=True):
            self.require(ok, name, self._columns.lists[name], f"{least} to {most}", code)

    def require(
        self,
        passed: Passed,
        field: str,
        values: Sequence[object],
        expected: str | Callable[[int], str],
        code: Code = Code.BAD_FIELD,
    ) -> None:
        """Refuse the rows where `passed` [n] is False, showing `values[row]`."""
        if passed.all():
            return
        for row in np.flatnonzero(~passed).tolist():
            text = expected if isinstance(expected, str) else expected(row)
            self.refuse(row, code, field, values[row], text)

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
        if passed.all():
            return
        bad = np.flatnonzero(~passed)
        owners = np.searchsorted(begins, bad, side="right") - 1
        for row, place in zip(*np.unique(owners, return_index=True), strict=True):
            self.refuse(int(row), code, field, values[bad[place]].item(), expected)

    def refuse(self, row: int, code: Code, field: str, value: object, expected: str) -> None:
        """Refuse one row, unless it is already. One whose ids are out of range cannot be named."""
        if row in self._errors:
            return
        error = WireError(code, field, value, expected)
        request, generation, number = (self._columns.lists[name][row] for name in IDS)
        if all(0 <= i <= MAX_ID for i in (request, generation, number)):
            error.request, error.generation, error.number = request, generation, number
        self._errors[row] = error

    def refuse_all(self, code: Code, field: str, value: object, expected: str) -> None:
        """Refuse every row: the payload cannot be divided among them."""
        for row in range(self._columns.table.shape[1]):
            self.refuse(row, code, field, value, expected)

    def __contains__(self, row: int) -> bool:
        return row in self._errors

    def in_order(self) -> list[WireError]:
        """The errors, in the order of the batch."""
        return [self._errors[row] for row in sorted(self._errors)]
