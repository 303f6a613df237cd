"""Triton looks for exactly one concrete `BaseBackend` in this module."""

from __future__ import annotations

from typing import Any, NoReturn

import triton.backends.compiler as triton_compiler


class InterpretedBackend(triton_compiler.BaseBackend):
    @staticmethod
    def supports_target(target: Any) -> bool:
        return bool(target.backend == "cpu")

    def hash(self) -> str:
        return "interpreted"

    def parse_options(self, options: dict[str, Any]) -> NoReturn:
        raise NotImplementedError("kernels are interpreted: set TRITON_INTERPRET=1")

    def add_stages(self, stages: Any, options: Any, language: Any) -> NoReturn:
        raise NotImplementedError("kernels are interpreted: set TRITON_INTERPRET=1")

    def load_dialects(self, context: Any) -> None:
        """There are none."""

    def get_module_map(self) -> dict[str, Any]:
        return {}
