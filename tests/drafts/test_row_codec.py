"""Rows to bytes and back: what each number format keeps."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from sidedraft.drafts.row_codec import DTYPES, decode, encode
from sidedraft.wire.rows import FORMATS, ITEM_SIZES


def there_and_back(values: torch.Tensor, name: str, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    out = torch.full((len(values), FORMATS[name].row_bytes(values.shape[1])), 0xFF, dtype=torch.uint8)
    encode(values, FORMATS[name], out)
    return decode(out, FORMATS[name], dtype)


def test_every_number_format_of_the_wire_has_its_size() -> None:
    assert {name: dtype.itemsize for name, dtype in DTYPES.items()} == dict(ITEM_SIZES)


@pytest.mark.parametrize("source", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("name", ["f32", "bf16", "f16"])
def test_plain_formats_are_casts(name: str, source: torch.dtype) -> None:
    values = torch.randn(5, 6, generator=torch.Generator().manual_seed(0)).to(source)
    assert there_and_back(values, name).equal(values.to(DTYPES[name]).float())


@settings(deadline=None)
@given(rows=st.integers(1, 4), width=st.integers(1, 33), scale=st.floats(-30, 30), seed=st.integers(0, 99))
def test_an_fp8_row_keeps_each_value_to_a_sixteenth_or_to_its_scale(
    rows: int, width: int, scale: float, seed: int
) -> None:
    """e4m3 has 3 bits behind the point (an error of 1/16 of the value at most) down to 2**-6, below which its
    steps are 2**-9, each times the row's scale."""
    values = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed)) * 10**scale
    error = (there_and_back(values, "fp8") - values).abs()
    step = values.abs().amax(1, keepdim=True) / 448 * 2**-9
    assert bool((error <= (values.abs() / 16).maximum(step) * 1.001).all())


def test_rows_do_not_share_a_scale_and_a_row_of_zeros_stays_one() -> None:
    values = torch.tensor([[1e-12, -3e-12], [0.0, -0.0], [4e9, 1e9]])
    back = there_and_back(values, "fp8")
    torch.testing.assert_close(back, values, rtol=1 / 16, atol=0)
    assert not back[1].any()


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_row_that_is_not_finite_does_not_become_finite_and_spoils_no_other(name: str, bad: float) -> None:
    values = torch.ones(3, 4)
    values[1, 2] = bad
    back = there_and_back(values, name)
    assert not bool(back[1].isfinite().all())
    assert bool(back[0].eq(1).all())
    assert bool(back[2].eq(1).all())
