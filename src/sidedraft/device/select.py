"""Device and number format by name."""

from __future__ import annotations

import torch


class DeviceError(ValueError):
    """A device that this machine or this build of torch does not have."""


def resolve_device(name: str) -> torch.device:
    """`auto`, `cpu`, `cuda` or `cuda:N` (checked by `ServerSettings`) as a device that exists here.

    Raises `DeviceError`.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(name)
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if count == 0:
            built = "finds no GPU" if torch.version.cuda else "is a CPU build"
            raise DeviceError(f"device: {name!r} is not available: torch {torch.__version__} {built}")
        index = torch.cuda.current_device() if device.index is None else device.index
        if index >= count:
            raise DeviceError(f"device: {name!r} is not available; expected cuda:0 to cuda:{count - 1}")
        device = torch.device("cuda", index)
    return device


def resolve_dtype(name: str, device: torch.device) -> torch.dtype:
    """`auto`, `float32`, `bfloat16` or `float16`; `auto` is float32 on the CPU, bfloat16 on a GPU."""
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name not in dtypes:
        raise DeviceError(f"dtype: {name!r} is not known; expected auto, {', '.join(dtypes)}")
    return dtypes[name]
