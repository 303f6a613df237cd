"""The only package that names CUDA."""

from sidedraft.device.select import DeviceError, resolve_device, resolve_dtype

__all__ = ["DeviceError", "resolve_device", "resolve_dtype"]
