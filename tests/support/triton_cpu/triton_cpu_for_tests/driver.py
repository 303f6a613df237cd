"""Triton looks for exactly one concrete `DriverBase` in this module."""

from __future__ import annotations

from typing import Any, NoReturn

import triton.backends.compiler as triton_compiler
import triton.backends.driver as triton_driver


class InterpretedDriver(triton_driver.DriverBase):
    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> Any:
        return triton_compiler.GPUTarget("cpu", 0, 1)

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cpu")

    def get_benchmarker(self) -> NoReturn:
        raise NotImplementedError("interpreted kernels are not tuned")
