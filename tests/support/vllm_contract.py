"""Compare `sidedraft.integrations.vllm.contract` with vLLM's sources, by their syntax trees.

Nothing is imported. What an item finds in a version (its *fact*) fits into JSON, to be recorded.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sidedraft.integrations.vllm.contract import CONTRACT, Attribute, Call, Function, Item, Name

RECORDS = Path(__file__).resolve().parents[1] / "integrations" / "vllm" / "contract"
VERSIONS = tuple(sorted(path.stem for path in RECORDS.glob("*.json")))
"""Recorded ones."""
Fact = list[str] | list[list[str]] | None
"""Of a function its parameters, of a call the arguments of each, of names those that are; None: not found."""


def key(item: Item) -> str:
    """Names an item in a record."""
    match item:
        case Function():
            return f"function {item.module}:{item.name}"
        case Call():
            return f"call {item.module}:{item.within} -> {item.callee}"
        case Attribute():
            return f"attributes {item.module}:{item.owner}"
        case Name():
            return f"names {item.module}"


def recorded(version: str) -> dict[str, Fact]:
    """Facts that `tools/extract_vllm_contract.py` found in a version."""
    facts: dict[str, Fact] = _record(version)["facts"]
    return facts


def required(version: str) -> list[str]:
    """What a version requires, as it was recorded."""
    lines: list[str] = _record(version)["requires"]
    return lines


def _record(version: str) -> dict[str, Any]:
    record: dict[str, Any] = json.loads((RECORDS / f"{version}.json").read_text())
    return record


def observe(item: Item, root: Path) -> Fact:
    """The fact of an item in the sources below `root`, the folder that holds the package folder `vllm`."""
    tree = _parse(root, item.module)
    if tree is None:
        return None
    match item:
        case Function():
            found = _find(tree, item.name)
            return None if found is None else _parameters(found)
        case Call():
            found = _find(tree, item.within)
            return None if found is None else [_arguments(call) for call in _calls(found, item.callee)]
        case Attribute():
            owner = _find(tree, item.owner)
            return None if owner is None else sorted(set(item.names) & set(_attributes(owner)))
        case Name():
            return sorted(set(item.names) & set(_bound(tree)))


def merged(items: Sequence[Item], root: Path) -> dict[str, Fact]:
    """Facts by key; items of one key (parts of the contract may share a module) are put together."""
    facts: dict[str, Fact] = {}
    for item in items:
        fact, name = observe(item, root), key(item)
        old = facts.get(name)
        if isinstance(item, (Name, Attribute)) and old and fact:
            fact = sorted({str(one) for one in [*old, *fact]})
        facts[name] = fact
    return facts


def complaints(facts: dict[str, Fact], items: Sequence[Item] = CONTRACT) -> list[str]:
    """What a version does not have, or has otherwise; empty when the contract holds."""
    found = (_complaint(item, facts) for item in items)
    return [line for line in found if line]


def _complaint(item: Item, facts: dict[str, Fact]) -> str:
    name = key(item)
    if name not in facts:
        return f"{name}: not recorded; run tools/extract_vllm_contract.py"
    fact = facts[name]
    if fact is None or (isinstance(item, Call) and not fact):
        return f"{name}: not found"
    match item:
        case Function():
            parameters = [str(one) for one in fact]
            return "" if _same_parameters(item.parameters, parameters) else f"{name}: has {parameters}"
        case Call():
            others = [call for call in fact if not _same_arguments(item.arguments, list(call))]
            return f"{name}: called with {others}" if others else ""
        case _:
            missing = sorted(set(item.names) - set(fact))
            return f"{name}: without {missing}" if missing else ""


def _same_parameters(expected: Sequence[str], found: list[str]) -> bool:
    named = [one for one in expected if one not in ("...", "*")]
    names = [one.removesuffix("=") for one in found]
    if names[: len(named)] != named:
        return False
    rest = found[len(named) :]
    if expected and expected[-1] == "*":
        return True
    optional = all(one.endswith("=") or one.startswith("*") for one in rest)
    return optional if expected and expected[-1] == "..." else not rest


def _same_arguments(expected: Sequence[str], found: list[str]) -> bool:
    if expected and expected[-1] == "...":
        wanted = expected[:-1]
        positional = [one for one in wanted if not one.endswith("=")]
        keywords = {one for one in wanted if one.endswith("=")}
        return found[: len(positional)] == positional and keywords <= set(found)
    return list(expected) == found


def _parse(root: Path, module: str) -> ast.Module | None:
    base = root.joinpath(*module.split("."))
    for path in (base.with_name(base.name + ".py"), base / "__init__.py"):
        if path.is_file():
            return ast.parse(path.read_text())
    return None


def _find(tree: ast.AST, name: str) -> ast.AST | None:
    """A class or function by its dotted name, also below an `if` or `try`; the last of several."""
    for part in name.split("."):
        found = [node for node in _definitions(tree) if node.name == part]
        if not found:
            return None
        tree = found[-1]
    return tree


def _definitions(tree: ast.AST) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node
        elif isinstance(node, (ast.If, ast.Try, ast.With, ast.For)):
            yield from _definitions(node)


def _parameters(function: ast.AST) -> list[str]:
    """Names in order, `=` behind those with a default, without `self` and `cls`."""
    if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return []
    spec = function.args
    places = [*spec.posonlyargs, *spec.args]
    plain = len(places) - len(spec.defaults)
    names = [arg.arg + ("=" if index >= plain else "") for index, arg in enumerate(places)]
    names += [f"*{spec.vararg.arg}"] if spec.vararg else []
    pairs = zip(spec.kwonlyargs, spec.kw_defaults, strict=True)
    names += [arg.arg + ("=" if default is not None else "") for arg, default in pairs]
    names += [f"**{spec.kwarg.arg}"] if spec.kwarg else []
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def _calls(function: ast.AST, callee: str) -> Iterator[ast.Call]:
    for node in ast.walk(function):
        if isinstance(node, ast.Call):
            text = ast.unparse(node.func)
            if text == callee or text.endswith("." + callee):
                yield node


def _arguments(call: ast.Call) -> list[str]:
    return [ast.unparse(arg) for arg in call.args] + [f"{word.arg or '**'}=" for word in call.keywords]


def _attributes(owner: ast.AST) -> Iterator[str]:
    """Bound in a class's body, or assigned to `self` anywhere in it; its methods, too."""
    for node in ast.walk(owner):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=attr, ctx=ast.Store()):
                yield attr
    for node in ast.iter_child_nodes(owner):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name


def _bound(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names) | ast.ImportFrom(names=names):
                yield from (alias.asname or alias.name for alias in names)
    for node in _statements(tree):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        yield node
        if isinstance(node, (ast.If, ast.Try)):
            yield from _statements(node)
