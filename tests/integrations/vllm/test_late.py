"""Waiting for a module without importing it."""

from __future__ import annotations

import importlib
import sys
import threading
from pathlib import Path
from types import ModuleType

import pytest

from sidedraft.integrations.vllm.late import when_imported


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A package `awaited` with modules `one`, which imports itself half-way, and `two`, which fails."""
    folder = tmp_path / "awaited"
    folder.mkdir()
    (folder / "__init__.py").write_text("value = 1\n")
    (folder / "one.py").write_text("early = 1\nimport awaited.one\nlate = 2\n")
    (folder / "two.py").write_text("raise RuntimeError('two')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.split(".")[0] == "awaited"]:
        monkeypatch.delitem(sys.modules, name)
    return "awaited"


def test_nothing_is_imported_and_the_action_runs_once_the_module_is_complete(package: str) -> None:
    seen: list[tuple[str, int]] = []
    when_imported("awaited.one", lambda module: seen.append((module.__name__, module.late)))
    assert "awaited" not in sys.modules
    importlib.import_module("awaited.one")
    importlib.import_module("awaited.one")
    assert seen == [("awaited.one", 2)]


def test_a_module_that_is_there_is_acted_on_at_once(package: str) -> None:
    module = importlib.import_module("awaited")
    seen: list[ModuleType] = []
    when_imported("awaited", seen.append)
    assert seen == [module]


def test_actions_run_in_the_order_given_and_can_replace_what_others_import(package: str) -> None:
    seen: list[int] = []

    def replace(module: ModuleType) -> None:
        seen.append(module.value)
        module.value = 5  # type: ignore[attr-defined]

    when_imported("awaited", replace)
    when_imported("awaited", lambda module: seen.append(module.value))
    scope: dict[str, int] = {}
    exec("from awaited import value", scope)
    assert seen == [1, 5]
    assert scope["value"] == 5


def test_the_module_looks_as_if_nobody_had_waited(package: str, tmp_path: Path) -> None:
    when_imported("awaited", lambda module: None)
    waited = importlib.import_module("awaited")
    del sys.modules["awaited"]
    plain = importlib.import_module("awaited")
    assert type(waited.__loader__) is type(plain.__loader__)
    assert vars(waited.__loader__) == vars(plain.__loader__)
    assert waited.__spec__ == plain.__spec__


def test_an_import_that_fails_fails_as_ever_and_is_still_waited_for(package: str, tmp_path: Path) -> None:
    seen: list[ModuleType] = []
    when_imported("awaited.two", seen.append)
    with pytest.raises(RuntimeError, match="two"):
        importlib.import_module("awaited.two")
    assert not seen
    (tmp_path / "awaited" / "two.py").write_text("mended = True\n")
    importlib.invalidate_caches()
    importlib.import_module("awaited.two")
    assert [module.__name__ for module in seen] == ["awaited.two"]


def test_a_module_that_does_not_exist_is_not_found(package: str) -> None:
    when_imported("awaited.three", lambda module: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("awaited.three")


def test_an_exception_of_the_action_is_the_imports(package: str) -> None:
    def refuse(module: ModuleType) -> None:
        raise ValueError("refused")

    when_imported("awaited.one", refuse)
    with pytest.raises(ValueError, match="refused"):
        importlib.import_module("awaited.one")


def test_threads_that_import_at_once_see_the_action_done(package: str) -> None:
    values: list[int] = []

    def replace(module: ModuleType) -> None:
        module.value = 5  # type: ignore[attr-defined]

    def read() -> None:
        values.append(importlib.import_module("awaited").value)

    when_imported("awaited", replace)
    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == [5] * 4
