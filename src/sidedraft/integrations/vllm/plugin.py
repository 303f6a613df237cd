"""vLLM's way in: `register` is the entry point `sidedraft` of the group `vllm.general_plugins`.

vLLM calls it in every process (front end, engine core, workers), before it knows its configuration. So it
only leaves three wrappers behind, each put on when vLLM itself imports the module in question. Without a
configuration a wrapper hands on to the original and nothing else happens.
"""

from __future__ import annotations

import functools
import logging
import os
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from sidedraft.integrations.vllm import contract, versions
from sidedraft.integrations.vllm.late import replace, when_imported

if TYPE_CHECKING:
    from sidedraft.integrations.vllm.config import VllmSettings

_MENTIONS = ("SIDEDRAFT_", "VLLM_K3_D")
"""How variables begin that may configure us; `config.load` knows exactly."""


def register() -> None:
    """Put the wrappers on, once a process however often it is called.

    Raises:
        UnsupportedVersionError: variables configure us, and vLLM's version is not supported.
    """
    when_imported(contract.CONFIG, _check_when_configured)
    version = _vllm_version()
    if not versions.is_supported(version):
        if os.environ.get("SIDEDRAFT_ADDRESS"):
            raise versions.UnsupportedVersionError(version)
        return
    when_imported(contract.SPECULATORS, _hand_over_speculator)
    if contract.MODEL_RUNNER in sys.modules:  # it has the function by name already
        when_imported(contract.MODEL_RUNNER, _hand_over_speculator)
    when_imported(contract.SCHEDULER, _hand_over_depth)


def settings_of(vllm_config: Any) -> VllmSettings | None:
    """`config.load`, which is imported only where something may be configured; None when nothing is.

    Raises:
        ConfigurationError: something is configured wrongly.
        UnsupportedVersionError: something is configured, and vLLM's version is not supported.
    """
    additional = vllm_config.additional_config
    mentioned = isinstance(additional, Mapping) and "sidedraft" in additional
    if not mentioned and not any(name.startswith(_MENTIONS) for name in os.environ):
        return None
    from sidedraft.integrations.vllm.config import is_configured, load

    _log_as_vllm_does()
    if not is_configured(vllm_config):
        return None
    versions.require(_vllm_version())
    return load(vllm_config)


def _check_when_configured(module: ModuleType) -> None:
    """A wrong setting ends the start here, in the process and at the moment the operator looks at; with the
    right ones, prefix caching stays as good as without speculation."""

    def wrap(original: Callable[[Any], None]) -> Callable[[Any], None]:
        @functools.wraps(original)
        def __post_init__(self: Any) -> None:  # noqa: N807 - the name it replaces
            original(self)
            if settings_of(self) is not None:
                # The draft's context is not in this engine's cache: no block of a prefix that is found there
                # has to be computed again for its sake.
                self.speculative_config.disable_eagle_block_drop = True

        return __post_init__

    if hasattr(module, "VllmConfig"):  # on versions that nobody has looked at, it may have another name
        replace(module.VllmConfig, "__post_init__", wrap)


def _hand_over_speculator(module: ModuleType) -> None:
    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def init_speculator(vllm_config: Any, device: Any, req_states: Any) -> Any:
            settings = settings_of(vllm_config)
            if settings is None:
                return original(vllm_config, device, req_states)
            from sidedraft.integrations.vllm.speculator import RemoteSpeculator

            return RemoteSpeculator(vllm_config, device, req_states, settings)

        return init_speculator

    replace(module, "init_speculator", wrap)


def _hand_over_depth(module: ModuleType) -> None:
    def wrap(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def __init__(self: Any, vllm_config: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
            original(self, vllm_config, *args, **kwargs)
            settings = settings_of(vllm_config)
            if settings is not None:
                from sidedraft.integrations.vllm.depth import attach

                attach(self, settings)

        return __init__

    replace(module.Scheduler, "__init__", wrap)


def _vllm_version() -> str:
    import vllm  # it is loading us: this finds what is loaded

    return str(vllm.__version__)


@functools.cache
def _log_as_vllm_does() -> None:
    """Lines of ours appear where, and as, vLLM's do; unless somebody has set our logger up already."""
    ours, theirs = logging.getLogger("sidedraft"), logging.getLogger("vllm")
    if ours.handlers or ours.level or not theirs.handlers:
        return
    ours.handlers[:] = theirs.handlers
    ours.setLevel(theirs.level)
    ours.propagate = theirs.propagate
