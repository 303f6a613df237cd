"""The engine's rows as the wire carries them: projected if that was agreed, then converted."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from sidedraft.drafts.projection import ContextProjection, load_projection
from sidedraft.drafts.row_codec import encode
from sidedraft.settings import SettingsError, format_bytes
from sidedraft.verifier.submission import Rows
from sidedraft.wire.rows import FORMATS, PROJECTED, RowFormat

_log = logging.getLogger("sidedraft.verifier")

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


def projection_for(
    kinds: Iterable[str], draft_dir: Path | None, *, dtype: torch.dtype, device: torch.device
) -> ContextProjection | None:
    """What projected kinds of formats among these need, from the draft's folder; None when there are none.

    Says in the log what it takes of the target's device.

    Raises:
        SettingsError: there is no folder.
        CheckpointError: the folder has not got the weights.
    """
    projected = [kind for kind in kinds if kind not in FORMATS]
    if not projected:
        return None
    if draft_dir is None:
        raise SettingsError("row_formats", projected[0], "a plain format, without the draft's folder")
    projection = load_projection(draft_dir, dtype=dtype, device=device)
    _log.info(
        "rows of %s values travel as %s where the server's draft is the same; projecting them takes %s of %s",
        projection.fc.shape[1],
        projection.facts.width,
        format_bytes(projection.nbytes),
        device,
    )
    return projection


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
