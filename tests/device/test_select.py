"""Devices and number formats by name."""

from __future__ import annotations

import pytest
import torch

from sidedraft.device import DeviceError, resolve_device, resolve_dtype

CPU = torch.device("cpu")
CUDA = torch.device("cuda", 0)


def test_auto_is_the_cpu_without_a_gpu_and_float32_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_device("auto") == CPU
    assert resolve_dtype("auto", CPU) is torch.float32


def test_auto_is_a_gpu_where_there_is_one_and_bfloat16_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert resolve_device("auto") == torch.device("cuda", 1)
    assert resolve_device("cuda:0") == CUDA
    assert resolve_dtype("auto", CUDA) is torch.bfloat16
    with pytest.raises(DeviceError, match=r"cuda:2.*cuda:0 to cuda:1"):
        resolve_device("cuda:2")


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(DeviceError, match="'cuda' is not available"):
        resolve_device("cuda")


def test_a_named_dtype_is_taken_on_any_device_and_others_are_refused() -> None:
    assert resolve_dtype("float16", CPU) is torch.float16
    with pytest.raises(DeviceError, match="float8"):
        resolve_dtype("float8", CPU)
