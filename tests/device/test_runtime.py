"""The engine's view of a device, on the CPU and (where there is one) on a GPU."""

from __future__ import annotations

import pytest
import torch

from sidedraft.device import CpuRuntime, runtime_for

DEVICES = [
    "cpu",
    pytest.param("cuda:0", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]


@pytest.mark.parametrize("name", DEVICES)
def test_what_is_uploaded_can_be_fetched_after_a_mark(name: str) -> None:
    device = torch.device(name)
    runtime = runtime_for(device)
    assert runtime.device == device
    source = runtime.host_buffer(3, 4, dtype=torch.float32)
    source.copy_(torch.arange(12.0).view(3, 4))
    target = torch.empty(3, 4, device=device)
    runtime.upload(source, target)
    back = runtime.fetch(target * 2)
    mark = runtime.mark()
    mark.wait()
    assert mark.reached()
    assert back.device.type == "cpu"
    assert back.tolist() == (source * 2).tolist()


def test_on_the_cpu_host_memory_is_device_memory() -> None:
    runtime = CpuRuntime()
    source = runtime.host_buffer(4, dtype=torch.int32)
    runtime.upload(source, source)
    assert runtime.fetch(source) is source
    assert not runtime.graphs


def test_another_kind_of_device_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="'meta' is not supported; expected cpu or cuda"):
        runtime_for(torch.device("meta"))


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_buffer_is_memory_of_the_device_of_exactly_that_size(name: str, dtype: torch.dtype) -> None:
    buffer = runtime_for(torch.device(name)).buffer(3, 700, dtype=dtype)
    assert (buffer.shape, buffer.dtype, str(buffer.device)) == ((3, 700), dtype, name)
    assert buffer.untyped_storage().nbytes() == 3 * 700 * dtype.itemsize
    assert buffer.fill_(2).float().sum().item() == 4200


def test_memory_that_the_machine_does_not_have_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match=f"{1 << 50} bytes"):
        CpuRuntime().buffer(1 << 50, dtype=torch.uint8)
