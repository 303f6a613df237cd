"""The engine's rows as the wire carries them: projected if that was agreed, then converted."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sidedraft.drafts.projection import ContextProjection
from sidedraft.drafts.row_codec import encode
from sidedraft.verifier.submission import Rows
from sidedraft.wire.rows import PROJECTED, RowFormat

NATIVE = {
    torch.float32: ("f32", "bf16", "f16"),
    torch.bfloat16: ("bf16", "f32"),
    torch.float16: ("f16", "f32"),
}
"""What rows travel in unless something else is preferred, by the dtype they come in, best first; bfloat16's
range does not fit float16."""


def offered(preferred: Iterable[str], dtype: torch.dtype) -> tuple[str, ...]:
    """Kinds of formats to offer, best first: what is preferred, and then the dtype's own, so that a server
    that reads none of the preferred still gets rows.

    `projected` alone stands for projected rows in the dtype's own number format.
    """
    native = NATIVE[dtype]
    kinds = [f"{PROJECTED}-{native[0]}" if kind == PROJECTED else kind for kind in preferred]
    return tuple(dict.fromkeys((*kinds, *native)))


@torch.inference_mode()
def encode_rows(
    rows: Rows,
    row_format: RowFormat,
    out: Tensor | npt.NDArray[np.uint8],
    projection: ContextProjection | None = None,
) -> None:
    """Write rows [n, taps x hidden size] to `out`, uint8 [n, row_bytes] or flat, contiguous.

    Whatever computing there is happens on the rows' device (the projection's, when projected), so that `out`,
    which may be on the host, gets no more bytes than travel. From another device this waits for the copy.

    Raises:
        ValueError: a projected format without the projection that it names.
    """
    values = rows.detach() if isinstance(rows, Tensor) else torch.from_numpy(np.ascontiguousarray(rows))
    if row_format.projection is not None:
        if projection is None or projection.facts != row_format.projection:
            found = None if projection is None else projection.facts
            raise ValueError(f"projection: {found} is not the one of {row_format.name}")
        values = projection(values.to(device=projection.fc.device, dtype=projection.fc.dtype))
    target = out if isinstance(out, Tensor) else torch.from_numpy(out)
    encode(values, row_format, target.view(len(values), -1))
