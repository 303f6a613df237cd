"""The only package that names CUDA."""

from sidedraft.device.marks import Mark
from sidedraft.device.runtime import CpuRuntime, CudaRuntime, Runtime, runtime_for
from sidedraft.device.select import DeviceError, resolve_device, resolve_dtype
from sidedraft.device.transfers import CudaTransfers, Transfers

__all__ = [
    "CpuRuntime",
    "CudaRuntime",
    "CudaTransfers",
    "DeviceError",
    "Mark",
    "Runtime",
    "Transfers",
    "resolve_device",
    "resolve_dtype",
    "runtime_for",
]
