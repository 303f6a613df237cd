"""The engine's rows as they travel: any dtype and layout in, agreed bytes out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from sidedraft.drafts import load_projection
from sidedraft.drafts.projection import ContextProjection
from sidedraft.drafts.row_codec import decode, encode
from sidedraft.verifier.encoding import encode_rows, offered
from sidedraft.wire.rows import FORMATS, KINDS, Projection, of_kind
from support.checkpoints import tiny_draft, tiny_target


@pytest.fixture(scope="module")
def projection(tmp_path_factory: pytest.TempPathFactory) -> ContextProjection:
    folder: Path = tmp_path_factory.mktemp("draft")
    target = tiny_target(folder / "target")
    return load_projection(tiny_draft(folder / "draft", "dflash", target=target))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "source", [torch.float32, torch.bfloat16, torch.float16, torch.float64, np.float32, np.float16]
)
def test_rows_of_any_dtype_become_the_agreed_bytes(
    kind: str, source: torch.dtype | type, projection: ContextProjection
) -> None:
    values = torch.randn(5, projection.fc.shape[1], generator=torch.Generator().manual_seed(0))
    rows = values.to(source) if isinstance(source, torch.dtype) else values.numpy().astype(source)
    row_format = of_kind(kind, projection.facts)
    size = row_format.row_bytes(values.shape[1])
    out = np.full(5 * size, 0xFF, np.uint8)
    encode_rows(rows, row_format, out, projection)
    wanted = torch.as_tensor(rows)
    if kind not in FORMATS:
        wanted = projection(wanted.float())
    expected = torch.empty(5, size, dtype=torch.uint8)
    encode(wanted, row_format, expected)
    assert out.tobytes() == expected.numpy().tobytes()


def test_rows_may_be_strided_and_may_require_gradients() -> None:
    wide = torch.randn(5, 12, requires_grad=True)
    for rows in (wide[:, ::2], wide.detach().numpy()[::-1, ::2][::-1]):
        out = torch.zeros(5, 6 * 4, dtype=torch.uint8)
        encode_rows(rows, FORMATS["f32"], out)
        assert decode(out, FORMATS["f32"], torch.float32).equal(wide[:, ::2].detach())


def test_rows_are_not_projected_by_another_projection(projection: ContextProjection) -> None:
    out = np.zeros(8 * 4, np.uint8)
    for own in (None, projection):
        with pytest.raises(ValueError, match="is not the one of projected-f32"):
            encode_rows(torch.zeros(1, 8), of_kind("projected-f32", Projection(8, "0" * 32)), out, own)


@pytest.mark.parametrize(
    ("preferred", "dtype", "kinds"),
    [
        ((), torch.bfloat16, ("bf16", "f32")),
        (("projected-fp8", "fp8"), torch.bfloat16, ("projected-fp8", "fp8", "bf16", "f32")),
        (("projected",), torch.float16, ("projected-f16", "f16", "f32")),
        (("f32",), torch.bfloat16, ("f32", "bf16")),
    ],
)
def test_what_is_offered_ends_with_what_every_server_reads(
    preferred: tuple[str, ...], dtype: torch.dtype, kinds: tuple[str, ...]
) -> None:
    assert offered(preferred, dtype) == kinds
