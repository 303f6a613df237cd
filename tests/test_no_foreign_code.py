"""Nothing in the package runs code that came from a peer or a checkpoint: by its source, and by trying."""

from __future__ import annotations

import ast
import io
import json
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import sidedraft
from sidedraft.drafts import CheckpointError, load_draft
from sidedraft.drafts.mask_row import MASK_FILE
from support.checkpoints import tiny_draft, tiny_target

SOURCE = Path(sidedraft.__file__).parent

BANNED_MODULES = {
    "pickle",
    "_pickle",
    "cPickle",
    "cloudpickle",
    "dill",
    "joblib",
    "marshal",
    "shelve",
    "runpy",
    "code",
}
"""Reading with these, or running them, is running what was read."""

BANNED_CALLS = {"eval", "exec", "compile", "__import__", "execfile"}

BANNED_METHODS = {
    "torch.load",
    "torch.jit.load",
    "torch.hub.load",
    "torch.package.PackageImporter",
    "torch.serialization.load",
    "numpy.fromfile",
    "recv_pyobj",
    "send_pyobj",
    "recv_serialized",
    "unsafe_load",
    "loads_pickle",
}

ARGUMENTS = {"trust_remote_code": True, "allow_pickle": True, "weights_only": False, "shell": True}
"""Values that would make a library run what it reads."""

RESTRICTED = "drafts/mask_row.py"
"""The one place with `torch.load`: some DFlash checkpoints have a single row in that format. It says
`weights_only=True`, which reads tensors and plain containers."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield str(path.relative_to(SOURCE)), ast.parse(path.read_text(), str(path))


def dotted(node: ast.expr) -> str:
    """`torch.load` of an attribute's syntax; the last name alone where the rest is computed."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else node.attr
    return ""


def faults(name: str, tree: ast.Module) -> list[str]:
    """What is banned and stands in a module, with its line."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names]
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            found += [f"import {one}" for one in names if one.split(".")[0] in BANNED_MODULES]
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
                found += [f"from torch: {one.name}" for one in node.names if one.name == "load"]
        elif isinstance(node, ast.Call):
            called = dotted(node.func)
            if called in BANNED_CALLS or called.removeprefix("builtins.") in BANNED_CALLS:
                found.append(f"call of {called}")
            if called in BANNED_METHODS or called.rpartition(".")[2] in BANNED_METHODS:
                found.append(f"call of {called}")
            for keyword in node.keywords:
                if keyword.arg in ARGUMENTS:
                    value = keyword.value
                    harmless = isinstance(value, ast.Constant) and value.value is not ARGUMENTS[keyword.arg]
                    if not harmless:
                        found.append(f"{called}({keyword.arg}=...)")
    return [f"{name}: {one}" for one in found]


def test_no_module_runs_what_it_reads() -> None:
    found = [fault for name, tree in modules() for fault in faults(name, tree)]
    assert found == [f"{RESTRICTED}: call of torch.load"]
    (call,) = (
        node
        for node in ast.walk(ast.parse((SOURCE / RESTRICTED).read_text()))
        if isinstance(node, ast.Call) and dotted(node.func) == "torch.load"
    )
    assert {one.arg: ast.literal_eval(one.value) for one in call.keywords}["weights_only"] is True


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "import torch.package, dill.source",
        "eval(x)",
        "builtins.exec(x)",
        "torch.load(path)",
        "torch.load(path, weights_only=True)",
        "from torch import load",
        "torch.jit.load(path)",
        "socket.recv_pyobj()",
        "np.load(path, allow_pickle=True)",
        "np.load(path, allow_pickle=flag)",
        "AutoModel.from_pretrained(x, trust_remote_code=True)",
        "subprocess.run(x, shell=True)",
        "compile(text, 'x', 'exec')",
    ],
)
def test_the_search_finds_what_it_looks_for(text: str) -> None:
    assert faults("x", ast.parse(text))


@pytest.mark.parametrize(
    "text",
    ["model.eval()", "re.compile(x)", "torch.compile(m)", "f(trust_remote_code=False)", "json.load(f)"],
)
def test_the_search_leaves_ordinary_code_alone(text: str) -> None:
    assert faults("x", ast.parse(text)) == []


class Bomb:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.mark,))


def test_a_checkpoint_that_brings_code_is_refused_and_none_of_it_runs(tmp_path: Path) -> None:
    target = tiny_target(tmp_path / "target")
    good = tiny_draft(tmp_path / "draft", "dflash", target=target)
    mark = tmp_path / "it-ran"
    pickled = io.BytesIO()
    torch.save({"fc.weight": Bomb(mark)}, pickled)
    pickle.loads(pickle.dumps(Bomb(mark)))  # the bomb works
    assert mark.exists()
    mark.unlink()
    for name in ("pytorch_model.bin", "model.pt", "model.safetensors", MASK_FILE):
        folder = tmp_path / name
        shutil.copytree(good, folder)
        if name != MASK_FILE:
            (folder / "model.safetensors").unlink()
        (folder / name).write_bytes(pickled.getvalue())
        (folder / "modeling_draft.py").write_text(f"open({str(mark)!r}, 'w')")
        config = json.loads((folder / "config.json").read_text())
        config["auto_map"] = {"AutoModel": "modeling_draft.Draft", "AutoConfig": "modeling_draft.Config"}
        (folder / "config.json").write_text(json.dumps(config))
        with pytest.raises(CheckpointError):
            load_draft(folder, target)
        assert not mark.exists()
