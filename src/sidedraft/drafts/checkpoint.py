"""Safe reading of a folder of safetensors files: one file, or shards with an index.

Nothing here unpickles, and nothing outside the folder is opened because a file inside it says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from sidedraft.drafts.configs.fields import read_json
from sidedraft.drafts.errors import CheckpointError

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"

FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
"""Types of a plain weight; anything else in its place is a quantised one."""

INTEGERS = {"I64": torch.int64, "I32": torch.int32, "I16": torch.int16}


class Checkpoint:
    """Tensors of a folder by name. A file is opened when one of its tensors is asked for, so that shards that
    nobody needs may be absent.

    A context manager: files stay mapped until it is left. Raises CheckpointError for everything wrong.
    """

    def __init__(self, folder: Path) -> None:
        if not folder.is_dir():
            raise CheckpointError(folder, "folder", found="nothing", expected="a folder with a checkpoint")
        self.folder = folder
        self._stack = ExitStack()
        self._open: dict[Path, Any] = {}
        self._place: dict[str, Path] = {}
        try:
            self._place = self._places()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._stack.close()
        self._open.clear()

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._place)

    def file(self, name: str) -> Path:
        """The file that holds (or should hold) a tensor."""
        return self._place.get(name, self.folder)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._slice(name).get_shape())

    def dtype(self, name: str) -> str:
        """The type's name in safetensors: F32, BF16, I8, ..."""
        return str(self._slice(name).get_dtype())

    def floats(self, name: str, *shape: int | None) -> Tensor:
        """A plain weight as stored, on the CPU. None in `shape` admits any size."""
        return self._read(name, shape, FLOATS, "a weight that is not quantised")

    def integers(self, name: str, *shape: int | None) -> Tensor:
        return self._read(name, shape, INTEGERS, "integers")

    def _read(
        self, name: str, shape: tuple[int | None, ...], kinds: Mapping[str, torch.dtype], what: str
    ) -> Tensor:
        if name not in self._place:
            raise CheckpointError(
                self.folder, f"tensor {name}", found="nothing", expected=f"{what} of shape {_show(shape)}"
            )
        kind = self.dtype(name)
        if kind not in kinds:
            expected = f"{what} ({', '.join(kinds)})"
            raise CheckpointError(self.file(name), f"tensor {name}", found=f"type {kind}", expected=expected)
        found = self.shape(name)
        matches = len(found) == len(shape) and all(b in (a, None) for a, b in zip(found, shape, strict=True))
        if not matches:
            raise CheckpointError(
                self.file(name),
                f"tensor {name}",
                found=f"shape {_show(found)}",
                expected=f"shape {_show(shape)}",
            )
        try:
            value: Tensor = self._handle(self._place[name]).get_tensor(name)
        except (SafetensorError, OSError, ValueError, RuntimeError) as error:
            raise CheckpointError(
                self.file(name), f"tensor {name}", found=str(error), expected="its values"
            ) from error
        return value

    def _slice(self, name: str) -> Any:
        file = self._place[name]
        try:
            return self._handle(file).get_slice(name)
        except SafetensorError:
            expected = f"the tensor that {INDEX_FILE} says is there"
            raise CheckpointError(file, f"tensor {name}", found="nothing", expected=expected) from None

    def _handle(self, file: Path) -> Any:
        if file not in self._open:
            try:
                self._open[file] = self._stack.enter_context(safe_open(file, framework="pt", device="cpu"))
            except FileNotFoundError:
                raise CheckpointError(file, "file", found="nothing", expected="a safetensors file") from None
            except (SafetensorError, OSError, ValueError, RuntimeError) as error:
                size = f"{file.stat().st_size} bytes, {error}"
                raise CheckpointError(
                    file, "file", found=size, expected="a whole safetensors file"
                ) from error
        return self._open[file]

    def _places(self) -> dict[str, Path]:
        index = self.folder / INDEX_FILE
        file = self.folder / SINGLE_FILE
        if not file.exists() and index.exists():
            return self._indexed(index)
        if not file.exists():
            files = sorted(self.folder.glob("*.safetensors"))
            if len(files) != 1:
                raise CheckpointError(
                    self.folder,
                    "weights",
                    found=f"{len(files)} safetensors files without an index",
                    expected=f"{SINGLE_FILE} or {INDEX_FILE}",
                )
            file = files[0]
        return dict.fromkeys(self._handle(file).keys(), file)

    def _indexed(self, index: Path) -> dict[str, Path]:
        table = read_json(index).section("weight_map")
        places: dict[str, Path] = {}
        for name in table.names():
            relative = table.text_or(name, "")
            path = PurePosixPath(relative)
            inside = not path.is_absolute() and ".." not in path.parts and "\\" not in relative
            if not inside or path.suffix != ".safetensors":
                table.fail(name, "a safetensors file inside the folder")
            places[name] = self.folder / path
        return places


def _show(shape: tuple[int | None, ...]) -> str:
    return "[" + ", ".join("any" if size is None else str(size) for size in shape) + "]"
