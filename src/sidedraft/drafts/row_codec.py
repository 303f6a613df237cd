"""Rows as tensors and as bytes of the wire (`wire.rows`): both directions, on any device."""

from __future__ import annotations

import torch
from torch import Tensor

from sidedraft.wire.rows import SCALE_BYTES, RowFormat

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "fp8": torch.float8_e4m3fn}
"""Torch's names of the wire's number formats."""

_GREATEST = torch.finfo(torch.float8_e4m3fn).max


def encode(values: Tensor, row_format: RowFormat, out: Tensor) -> None:
    """Write floating point values [n, w] to `out`, uint8 [n, row_bytes], contiguous, on any device.

    What is converted is converted on the values' device, so that as few bytes as possible are copied to
    another. From another device this waits for the copy. A value that is not finite makes its fp8 row NaN,
    which is refused where it is read, as in every format.
    """
    dtype = DTYPES[row_format.number]
    if not row_format.scaled:
        out.view(dtype).view(values.shape).copy_(values)
        return
    values = values.float()
    # A row of zeros has no greatest value to scale by; any scale above zero keeps it.
    scales = (values.abs().amax(1, keepdim=True) / _GREATEST).clamp_min(torch.finfo(torch.float32).tiny)
    numbers = (values / scales).clamp_(-_GREATEST, _GREATEST).to(dtype)
    if values.device == out.device:
        out[:, :-SCALE_BYTES].view(dtype).copy_(numbers)
        out[:, -SCALE_BYTES:] = scales.view(torch.uint8)
    else:
        out.copy_(torch.cat((numbers.view(torch.uint8), scales.view(torch.uint8)), 1))


def decode(data: Tensor, row_format: RowFormat, dtype: torch.dtype) -> Tensor:
    """Values [n, w] in `dtype` of rows uint8 [n, row_bytes], contiguous, on the rows' device."""
    number = DTYPES[row_format.number]
    if not row_format.scaled:
        return data.view(number).to(dtype)
    # A row's length need not be a multiple of four: the scales are copied to where they can be read.
    scales = data[:, -SCALE_BYTES:].clone(memory_format=torch.contiguous_format).view(torch.float32)
    return (data[:, :-SCALE_BYTES].view(number).float() * scales).to(dtype)
