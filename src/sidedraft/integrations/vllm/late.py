"""Change a module of somebody else's: once it is imported, without importing it, and no more than once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Action = Callable[[ModuleType], None]

_MARK = "_sidedraft_wraps"
"""Attribute of a wrapper: the original."""


class _Finder(MetaPathFinder):
    """Finds nothing itself: lets a module that is waited for be found by the others, and watches it load."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Action]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self.waiting:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                self._watch(spec)
                return spec
        return None

    def _watch(self, spec: ModuleSpec) -> None:
        loader = spec.loader
        if loader is None:
            return

        def exec_module(module: ModuleType) -> None:
            del loader.exec_module  # the loader's own from here on; a loader serves one module
            loader.exec_module(module)
            for action in self.waiting.pop(module.__name__, ()):
                action(module)

        loader.exec_module = exec_module  # type: ignore[method-assign]


_finder = _Finder()


def when_imported(name: str, action: Action) -> None:
    """Call `action(module)` right after the module of that name has been executed; now, if it has been.

    An exception of the action is the import's. Actions of one module run in the order given.
    """
    module = sys.modules.get(name)
    if module is not None and not _is_loading(module):
        action(module)
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.waiting.setdefault(name, []).append(action)


def replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    """Set `owner.name` to `wrap(original)`, unless a wrapper of ours is there already."""
    original = getattr(owner, name)
    if hasattr(original, _MARK):
        return
    wrapper = wrap(original)
    setattr(wrapper, _MARK, original)
    setattr(owner, name, wrapper)


def _is_loading(module: ModuleType) -> bool:
    return bool(getattr(module.__spec__, "_initializing", False))
