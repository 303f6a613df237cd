"""The only package that names CUDA."""

from sidedraft.device.runtime import CpuRuntime, CudaRuntime, Mark, Runtime, runtime_for
from sidedraft.device.select import DeviceError, resolve_device, resolve_dtype

__all__ = [
    "CpuRuntime",
    "CudaRuntime",
    "DeviceError",
    "Mark",
    "Runtime",
    "resolve_device",
    "resolve_dtype",
    "runtime_for",
]
