"""vLLM's sources of one version, from its source distribution, kept in the user's cache, never imported."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from sidedraft.settings import cache_directory

BUILD = ("setuptools", "setuptools-scm", "setuptools-rust", "wheel", "packaging")
"""pip asks a source distribution for its metadata even to download it, and vLLM's needs these, and torch."""
TIMEOUT = 600.0


class SourcesUnavailableError(Exception):
    """They could not be fetched; the message says why."""


def obtain(version: str) -> Path:
    """The folder that holds the package folder `vllm`; the first call downloads about 50 MB.

    Raises SourcesUnavailableError.
    """
    cache = cache_directory() / "vllm-sources"
    folder = cache / version
    if not (folder / "PKG-INFO").is_file():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache) as work:
            archive = _download(version, Path(work))
            _unpack(archive, Path(work) / "out")
            next((Path(work) / "out").iterdir()).rename(folder)
    return folder


def requirements(folder: Path) -> list[str]:
    """What it requires on every system, without its extras, by its metadata."""
    metadata = email.message_from_string((folder / "PKG-INFO").read_text())
    lines = metadata.get_all("Requires-Dist", [])
    return [line for line in lines if ";" not in line]


def _download(version: str, work: Path) -> Path:
    build = work / "build"
    _pip("install", "--target", str(build), *BUILD)
    environ = {"PYTHONPATH": str(build), "VLLM_TARGET_DEVICE": "empty", "VLLM_VERSION_OVERRIDE": version}
    options = ("--no-deps", "--no-binary", ":all:", "--no-build-isolation", "-d", str(work))
    _pip("download", *options, f"vllm=={version}", environ=environ)
    return next(work.glob("vllm-*.tar.gz"))


def _pip(*words: str, environ: dict[str, str] | None = None) -> None:
    command = [sys.executable, "-m", "pip", *words, "-q", "--disable-pip-version-check"]
    try:
        done = subprocess.run(
            command,
            env=os.environ | (environ or {}),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise SourcesUnavailableError(f"pip {words[0]} took longer than {TIMEOUT:.0f} s") from None
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise SourcesUnavailableError(f"pip {words[0]}: {(errors or ['failed'])[-1]}")


def _unpack(archive: Path, folder: Path) -> None:
    """The package's Python files, and its metadata, only."""
    with tarfile.open(archive) as tar:
        wanted = [member for member in tar if member.isfile() and _is_wanted(member.name.split("/")[1:])]
        tar.extractall(folder, wanted, filter="data")


def _is_wanted(parts: list[str]) -> bool:
    return parts == ["PKG-INFO"] or (parts[0] == "vllm" and parts[-1].endswith(".py"))
