"""The versions of vLLM whose hooks this integration knows; `contract` lists what it relies on."""

from __future__ import annotations

import re

LOWEST = (0, 32)
BELOW = (0, 34)
RANGE = f">={LOWEST[0]}.{LOWEST[1]},<{BELOW[0]}.{BELOW[1]}"

_NUMBER = re.compile(r"(\d+)\.(\d+)")


class UnsupportedVersionError(RuntimeError):
    """Sidedraft is configured, and this vLLM is not one whose hooks can be trusted."""

    def __init__(self, version: str) -> None:
        super().__init__(
            f"sidedraft is configured, but works with vLLM {RANGE} and this is vLLM {version}: "
            "install a vLLM of that range, or remove SIDEDRAFT_* and the sidedraft part of additional_config"
        )


def is_supported(version: str) -> bool:
    """Whether a text such as `0.32.0+cpu` lies in `RANGE`; pre-releases count as what they lead to."""
    found = _NUMBER.match(version)
    return found is not None and LOWEST <= (int(found[1]), int(found[2])) < BELOW


def require(version: str) -> None:
    """Raises UnsupportedVersionError."""
    if not is_supported(version):
        raise UnsupportedVersionError(version)
