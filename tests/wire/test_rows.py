"""Row formats: names and sizes both ends agree on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidedraft.wire.limits import MAX_NAME, MAX_WIDTH
from sidedraft.wire.rows import FORMATS, KINDS, Projection, find_format, of_kind

PROJECTION = Projection(7168, "0123456789abcdef" * 2)


@pytest.mark.parametrize(("name", "size"), [("f32", 4), ("bf16", 2), ("f16", 2), ("fp8", 1)])
@pytest.mark.parametrize("width", [0, 1, 5 * 4096])
def test_a_row_has_the_bytes_of_its_values_and_an_fp8_row_those_of_its_scale(name, size, width):
    row_format = FORMATS[name]
    assert row_format.name == row_format.kind == name
    assert row_format.row_bytes(width) == width * size + (4 if name == "fp8" else 0)
    projected = of_kind(f"projected-{name}", PROJECTION)
    assert projected.row_bytes(width) == 7168 * size + (4 if name == "fp8" else 0)


@given(
    kind=st.sampled_from(KINDS),
    width=st.integers(1, MAX_WIDTH),
    digest=st.text(alphabet="0123456789abcdef", min_size=32, max_size=32),
)
def test_a_name_says_everything_of_a_format(kind, width, digest):
    row_format = of_kind(kind, Projection(width, digest))
    assert len(row_format.name) <= MAX_NAME
    assert find_format(row_format.name) == row_format


@pytest.mark.parametrize(
    "name",
    [
        "f64",
        "projected",
        "projected-f32",
        "projected-f64.8." + "0" * 32,
        "projected-f32.0." + "0" * 32,
        "projected-f32.08." + "0" * 32,
        f"projected-f32.{MAX_WIDTH + 1}." + "0" * 32,
        "projected-f32.8." + "0" * 31,
        "projected-f32.8." + "A" * 32,
        "projected-f32.8." + "0" * 33,
        "projected-f32.8." + "0" * 32 + "\n",
    ],
)
def test_a_name_that_means_nothing_here_finds_nothing(name):
    assert find_format(name) is None


def test_a_projected_format_needs_a_projection_and_no_kind_is_invented():
    with pytest.raises(ValueError, match=r"^projection: None is not allowed"):
        of_kind("projected-fp8")
    with pytest.raises(ValueError, match=r"^kind: 'int4' is not allowed; expected one of f32, "):
        of_kind("int4", PROJECTION)


def test_the_table_cannot_be_changed():
    with pytest.raises(TypeError):
        FORMATS["f32"] = FORMATS["f16"]  # type: ignore[index]
