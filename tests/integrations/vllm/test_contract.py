"""Everything the integration relies on is in every supported vLLM, by name, signature and call site."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from sidedraft.integrations.vllm import versions
from sidedraft.integrations.vllm.contract import CONTRACT, Attribute, Call, Function, Item, Name
from support import vllm_contract
from support.vllm_harness import needs_vllm, vllm_sources

SOURCE = """
import os
from elsewhere import borrowed as kept

LIMIT: int = 3

class Engine(Base):
    depth: int = 0

    def __init__(self, config, *args, size, **kwargs):
        self.slots = build(config, self.depth, size=size)

    async def step(self, batch, late=False): ...

if LIMIT:
    def start(a, b=1, /, c=2): ...
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    package = tmp_path / "vllm" / "v1"
    package.mkdir(parents=True)
    (package / "engine.py").write_text(SOURCE)
    return tmp_path


@pytest.mark.parametrize("version", vllm_contract.VERSIONS)
def test_a_recorded_version_has_what_the_contract_says(version: str) -> None:
    assert vllm_contract.complaints(vllm_contract.recorded(version)) == []


def test_each_supported_minor_version_is_recorded() -> None:
    minors = {tuple(int(part) for part in version.split(".")[:2]) for version in vllm_contract.VERSIONS}
    (major, low), (_, above) = versions.LOWEST, versions.BELOW
    assert minors == {(major, minor) for minor in range(low, above)}


@needs_vllm
def test_the_installed_version_has_what_the_contract_says() -> None:
    sources = vllm_sources()
    assert sources is not None
    assert vllm_contract.complaints(vllm_contract.merged(CONTRACT, sources.parent)) == []


@pytest.mark.parametrize(
    "item",
    [
        Function("vllm.v1.engine", "Engine.step", ("batch", "...")),
        Function("vllm.v1.engine", "Engine.step", ("batch", "late")),
        Function("vllm.v1.engine", "Engine.__init__", ("config", "*")),
        Function("vllm.v1.engine", "start", ("a", "b", "c")),
        Call("vllm.v1.engine", "Engine.__init__", "build", ("config", "self.depth", "size=")),
        Call("vllm.v1.engine", "Engine.__init__", "build", ("config", "...")),
        Attribute("vllm.v1.engine", "Engine", ("depth", "slots", "step")),
        Name("vllm.v1.engine", ("os", "kept", "LIMIT", "Engine", "start")),
    ],
    ids=str,
)
def test_what_is_there_is_found(root: Path, item: Item) -> None:
    assert vllm_contract.complaints(vllm_contract.merged([item], root), [item]) == []


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (Function("vllm.v1.engine", "Engine.stop", ()), "not found"),
        (Function("vllm.v1.motor", "start", ()), "not found"),
        (Function("vllm.v1.engine", "Engine.step", ("batch",)), "late="),
        (Function("vllm.v1.engine", "Engine.step", ("late", "batch")), "batch"),
        (Function("vllm.v1.engine", "Engine.__init__", ("config", "...")), "size"),
        (Call("vllm.v1.engine", "Engine.__init__", "build", ("config",)), "self.depth"),
        (Call("vllm.v1.engine", "Engine.__init__", "build", ("config", "depth", "size=")), "self.depth"),
        (Call("vllm.v1.engine", "Engine.__init__", "start", ()), "not found"),
        (Attribute("vllm.v1.engine", "Engine", ("depth", "width")), "width"),
        (Name("vllm.v1.engine", ("borrowed",)), "borrowed"),
    ],
    ids=str,
)
def test_what_differs_is_said(root: Path, item: Item, said: str) -> None:
    (complaint,) = vllm_contract.complaints(vllm_contract.merged([item], root), [item])
    assert said in complaint


def test_an_item_that_was_never_recorded_is_said() -> None:
    (complaint,) = vllm_contract.complaints({}, [Name("vllm.v1.engine", ("os",))])
    assert "extract_vllm_contract" in complaint


def test_the_integration_names_no_module_of_vllm_outside_the_contract() -> None:
    """Imports of vLLM in the integration's files are of modules that the contract lists."""
    listed = {item.module for item in CONTRACT} | {"vllm"}
    folder = Path(versions.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "vllm":
                modules = {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
                assert modules & listed, f"{path.name} imports from {node.module}"
