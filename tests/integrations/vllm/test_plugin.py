"""The plugin on a stand-in for vLLM: what it leaves alone, and to whom it hands over when configured."""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from sidedraft.integrations.vllm import contract, plugin, versions
from sidedraft.integrations.vllm.config import ConfigurationError

ADDRESS = "ipc:///run/sidedraft/draft.sock"
MODULES = {
    contract.CONFIG: """
class VllmConfig:
    def __init__(self, method="dspark", additional_config=None):
        self.speculative_config = Speculative(method) if method else None
        self.parallel_config = Parallel()
        self.additional_config = additional_config or {}
        self.watermark_config = None
        self.__post_init__()

    def __post_init__(self):
        self.checked = True

class Speculative:
    enable_adaptive_verification = use_heterogeneous_vocab = False

    def __init__(self, method):
        self.method = method

class Parallel:
    prefill_context_parallel_size = 1
""",
    contract.SPECULATORS: """
def init_speculator(vllm_config, device, req_states):
    \"\"\"Stock.\"\"\"
    return "stock", vllm_config, device, req_states
""",
    contract.MODEL_RUNNER: "from vllm.v1.worker.gpu.spec_decode import init_speculator\n",
    contract.SCHEDULER: """
class Scheduler:
    def __init__(self, vllm_config, kv_cache_config, *, block_size):
        self.given = (vllm_config, kv_cache_config, block_size)

class AsyncScheduler(Scheduler):
    pass
""",
}
"""The parts of vLLM that are wrapped, with the names and signatures that `test_contract` compares."""


@pytest.fixture
def vllm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Path]]:
    """Puts a stand-in of some version on the path, and forgets it afterwards."""
    for name in [name for name in plugin.os.environ if name.startswith(("SIDEDRAFT_", "VLLM_K3_"))]:
        monkeypatch.delenv(name)

    def install(version: str) -> Path:
        for module, source in MODULES.items():
            path = tmp_path.joinpath(*module.split("."))
            path.mkdir(parents=True)
            (path / "__init__.py").write_text(source)
        (tmp_path / "vllm" / "__init__.py").write_text(f"__version__ = {version!r}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.import_module("vllm")
        return tmp_path

    real = {name: module for name, module in sys.modules.items() if name.split(".")[0] == "vllm"}
    for name in real:
        del sys.modules[name]
    meta_path = list(sys.meta_path)
    yield install
    sys.meta_path[:] = meta_path
    for name in [name for name in sys.modules if name.split(".")[0] == "vllm"]:
        del sys.modules[name]
    sys.modules.update(real)


@pytest.fixture
def handed_over(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the halves of the integration that need a real vLLM are given."""
    calls: list[tuple[Any, ...]] = []
    speculator = ModuleType("speculator")
    speculator.RemoteSpeculator = lambda *given: calls.append(("speculator", *given)) or "remote"  # type: ignore[attr-defined, func-returns-value]
    depth = ModuleType("depth")
    depth.attach = lambda *given: calls.append(("depth", *given))  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sidedraft.integrations.vllm.speculator", speculator)
    monkeypatch.setitem(sys.modules, "sidedraft.integrations.vllm.depth", depth)
    return calls


def load(name: str) -> Any:
    return importlib.import_module(name)


def start(method: str | None = "dspark", **section: Any) -> Any:
    """What vLLM does first: a configuration."""
    return load(contract.CONFIG).VllmConfig(method, {"sidedraft": section} if section else {})


def test_registering_imports_nothing_and_configures_nothing(vllm: Callable[[str], Path]) -> None:
    folder = vllm("0.32.0")
    script = f"""
import json, sys
sys.path.insert(0, {str(folder)!r})
import vllm
from importlib.metadata import entry_points
before = set(sys.modules)
(point,) = entry_points(group="vllm.general_plugins", name="sidedraft")
point.load()()
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    new = {name for name in json.loads(done.stdout) if name.split(".")[0] not in sys.stdlib_module_names}
    ours = "sidedraft.integrations.vllm"
    assert new == {
        "sidedraft",
        "sidedraft.integrations",
        ours,
        *(f"{ours}.{name}" for name in ("plugin", "contract", "versions", "late")),
    }
    assert done.stderr == ""


@pytest.mark.usefixtures("handed_over")
@pytest.mark.parametrize("version", ["0.32.0+cpu", "0.33.2", "0.31.0", "0.99.0"])
def test_not_configured_everything_is_the_originals(
    vllm: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    vllm(version)
    monkeypatch.setenv("SIDEDRAFT_SERVICE_HOST", "10.0.0.7")  # Kubernetes, for a service of that name
    plugin.register()
    config = start()
    assert config.checked
    runner = load(contract.MODEL_RUNNER)
    assert runner.init_speculator(config, "cpu", "states") == ("stock", config, "cpu", "states")
    assert str(inspect.signature(runner.init_speculator)) == "(vllm_config, device, req_states)"
    assert runner.init_speculator.__doc__ == "Stock."
    scheduler = load(contract.SCHEDULER).AsyncScheduler(config, "kv", block_size=16)
    assert scheduler.given == (config, "kv", 16)
    assert type(scheduler).__mro__[1].__name__ == "Scheduler"


def test_an_unsupported_version_keeps_its_own_functions(vllm: Callable[[str], Path]) -> None:
    vllm("0.34.0")
    plugin.register()
    assert not hasattr(load(contract.SPECULATORS).init_speculator, "__wrapped__")
    assert not hasattr(load(contract.SCHEDULER).Scheduler.__init__, "__wrapped__")


@pytest.mark.parametrize("method", ["dspark", "dflash"])
@pytest.mark.parametrize("by", ["variable", "command line", "fork's variable"])
def test_configured_the_speculator_is_ours(
    vllm: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    handed_over: list[tuple[Any, ...]],
    method: str,
    by: str,
) -> None:
    vllm("0.32.0")
    plugin.register()
    if by == "variable":
        monkeypatch.setenv("SIDEDRAFT_ADDRESS", ADDRESS)
    elif by == "fork's variable":
        monkeypatch.setenv("VLLM_K3_DRAFT_REMOTE_ADDRESS", ADDRESS)
    config = start(method, **({"address": ADDRESS} if by == "command line" else {}))
    assert load(contract.MODEL_RUNNER).init_speculator(config, "cpu", "states") == "remote"
    ((kind, *given, settings),) = handed_over
    assert (kind, given, settings.address) == ("speculator", [config, "cpu", "states"], ADDRESS)


def test_configured_the_scheduler_takes_the_depth_word(
    vllm: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, handed_over: list[tuple[Any, ...]]
) -> None:
    vllm("0.32.0")
    plugin.register()
    monkeypatch.setenv("SIDEDRAFT_ADDRESS", ADDRESS)
    scheduler = load(contract.SCHEDULER).AsyncScheduler(start(), "kv", block_size=16)
    assert scheduler.given[1:] == ("kv", 16)
    ((kind, attached, settings),) = handed_over
    assert (kind, attached, settings.address) == ("depth", scheduler, ADDRESS)


def test_an_engine_without_speculation_is_left_alone(
    vllm: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, handed_over: list[tuple[Any, ...]]
) -> None:
    vllm("0.32.0")
    plugin.register()
    monkeypatch.setenv("SIDEDRAFT_ADDRESS", ADDRESS)
    load(contract.SCHEDULER).Scheduler(start(None), "kv", block_size=16)
    assert handed_over == []


def test_registering_again_changes_nothing(
    vllm: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, handed_over: list[tuple[Any, ...]]
) -> None:
    vllm("0.32.0")
    for _ in range(3):
        plugin.register()
    monkeypatch.setenv("SIDEDRAFT_ADDRESS", ADDRESS)
    config = start()
    load(contract.MODEL_RUNNER).init_speculator(config, "cpu", "states")
    plugin.register()
    load(contract.MODEL_RUNNER).init_speculator(config, "cpu", "states")
    load(contract.SCHEDULER).Scheduler(config, "kv", block_size=16)
    assert [call[0] for call in handed_over] == ["speculator", "speculator", "depth"]
    assert not hasattr(load(contract.MODEL_RUNNER).init_speculator.__wrapped__, "__wrapped__")


@pytest.mark.parametrize("first", [contract.SPECULATORS, contract.MODEL_RUNNER])
def test_it_does_not_matter_what_was_imported_before(
    vllm: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    handed_over: list[tuple[Any, ...]],
    first: str,
) -> None:
    vllm("0.32.0")
    load(first)
    plugin.register()
    monkeypatch.setenv("SIDEDRAFT_ADDRESS", ADDRESS)
    load(contract.MODEL_RUNNER).init_speculator(start(), "cpu", "states")
    assert len(handed_over) == 1


def test_configured_by_variables_an_unsupported_version_is_refused_at_once(
    vllm: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    vllm("0.31.0")
    monkeypatch.setenv("SIDEDRAFT_ADDRESS", ADDRESS)
    with pytest.raises(versions.UnsupportedVersionError, match=r">=0\.32,<0\.34.*vLLM 0\.31\.0"):
        plugin.register()


@pytest.mark.parametrize("variable", ["VLLM_K3_DSPARK_REMOTE_ADDRESS", None])
def test_configured_otherwise_an_unsupported_version_is_refused_with_the_configuration(
    vllm: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, variable: str | None
) -> None:
    vllm("0.34.0")
    monkeypatch.setattr(
        "sidedraft.integrations.vllm.config.unsupported", None
    )  # may look for what is not there
    if variable:
        monkeypatch.setenv(variable, ADDRESS)
    plugin.register()
    with pytest.raises(versions.UnsupportedVersionError) as error:
        start(**({} if variable else {"address": ADDRESS}))
    assert "\n" not in str(error.value)


def test_a_wrong_setting_ends_the_start_with_the_configuration(vllm: Callable[[str], Path]) -> None:
    vllm("0.32.0")
    plugin.register()
    with pytest.raises(ConfigurationError, match=r"sidedraft\.address: 'nowhere'"):
        start(address="nowhere")


def test_our_lines_appear_where_vllms_do(
    vllm: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    vllm("0.32.0")
    ours, theirs = logging.getLogger("sidedraft"), logging.getLogger("vllm")
    handler = logging.NullHandler()
    for logger, handlers, level in ((ours, [], logging.NOTSET), (theirs, [handler], logging.INFO)):
        monkeypatch.setattr(logger, "handlers", handlers)
        monkeypatch.setattr(logger, "level", level)
        monkeypatch.setattr(logger, "propagate", False)
    plugin._log_as_vllm_does.cache_clear()
    plugin.register()
    start(address=ADDRESS)
    assert (ours.handlers, ours.level) == ([handler], logging.INFO)
    plugin._log_as_vllm_does.cache_clear()


def test_configured_no_block_of_a_prefix_is_computed_again(vllm: Callable[[str], Path]) -> None:
    vllm("0.32.0")
    plugin.register()
    assert not hasattr(start().speculative_config, "disable_eagle_block_drop")
    assert start(address=ADDRESS).speculative_config.disable_eagle_block_drop is True
