"""Create .venv with all that the demo, the tests and the checks need. Standard library only.

torch is the CPU build when the machine has no NVIDIA driver. To force a build, set SIDEDRAFT_TORCH to a pip
requirement ("torch==2.14.1") or to `skip` and install it into .venv yourself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
TORCH = "2.13.0"
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"


def pip(*arguments: str, quiet: bool = False) -> bool:
    """Run pip in .venv; True when it succeeded."""
    command = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "-q", *arguments]
    sink = subprocess.DEVNULL if quiet else None
    return subprocess.run(command, cwd=ROOT, stdout=sink, stderr=sink, check=False).returncode == 0


def has_torch() -> bool:
    probe = [str(PYTHON), "-c", "import torch"]
    return subprocess.run(probe, stderr=subprocess.DEVNULL, check=False).returncode == 0


def has_nvidia_driver() -> bool:
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def install_torch() -> bool:
    """The CPU build where pip is set up to find one, else from PyTorch's index, else the default build."""
    wanted = os.environ.get("SIDEDRAFT_TORCH", "")
    if has_torch() or wanted == "skip":
        return True
    if wanted:
        return pip(wanted)
    if has_nvidia_driver():
        return pip(f"torch=={TORCH}")
    return (
        pip(f"torch=={TORCH}+cpu", quiet=True)
        or pip(
            f"torch=={TORCH}", "--index-url", TORCH_CPU_INDEX, "--retries", "0", "--timeout", "10", quiet=True
        )
        or pip(f"torch=={TORCH}")
    )


def main() -> int:
    if sys.version_info < (3, 11):  # noqa: UP036 - a newcomer may have less than is needed
        found = ".".join(map(str, sys.version_info[:3]))
        print(
            f"setup: Python >= 3.11 is needed, this is {found}; run: make PYTHON=python3.11", file=sys.stderr
        )
        return 2
    if not PYTHON.exists():
        print("setup: creating .venv", flush=True)
        venv.create(VENV, with_pip=True)
    print("setup: torch", "(CUDA build)" if has_nvidia_driver() else "(CPU build)", flush=True)
    if not install_torch():
        print("setup: pip could not install torch; its message stands above", file=sys.stderr)
        return 1
    print("setup: sidedraft with its demo and development tools", flush=True)
    if not pip("-e", ".[dev]"):
        print("setup: pip could not install sidedraft[dev]; its message stands above", file=sys.stderr)
        return 1
    (VENV / ".ready").touch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
