"""The suite's own tools: tests of one group share a process, and so what they start once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = """
import os
import pytest

@pytest.mark.parametrize("at", range(12))
@pytest.mark.xdist_group("one")
def test_of_a_group(at):
    with open("processes.txt", "a") as file:
        file.write(f"{os.getpid()}\\n")
"""


def test_tests_of_one_group_run_in_one_process(tmp_path: Path) -> None:
    (tmp_path / "test_group.py").write_text(TESTS)
    words = ["-q", "-n", "2", "--dist", "loadgroup", "-c", "/dev/null", "--rootdir", ".", "test_group.py"]
    subprocess.run([sys.executable, "-m", "pytest", *words], cwd=tmp_path, check=True, capture_output=True)
    processes = (tmp_path / "processes.txt").read_text().split()
    assert len(processes) == 12
    assert len(set(processes)) == 1
