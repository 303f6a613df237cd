"""Row formats: names and sizes both ends agree on."""

from __future__ import annotations

import pytest

from sidedraft.wire.rows import FORMATS


@pytest.mark.parametrize(("name", "size"), [("f32", 4), ("bf16", 2), ("f16", 2)])
def test_a_row_has_the_bytes_of_its_values(name, size):
    row_format = FORMATS[name]
    assert row_format.name == name
    assert row_format.row_bytes(5 * 4096) == 5 * 4096 * size
    assert row_format.row_bytes(0) == 0


def test_the_table_cannot_be_changed():
    with pytest.raises(TypeError):
        FORMATS["f32"] = FORMATS["f16"]  # type: ignore[index]
