"""Every way to start a server wrongly that we could think of, and what the one line has to say."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from sidedraft.transport.keys import write_pair
from support.checkpoints import tiny_draft, tiny_target
from support.serve_process import PATIENCE, command, environment, sockets


class Workshop:
    """A good draft and a good target, and copies of them to be spoiled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.target = tiny_target(folder / "target", tied=False)
        self.draft = tiny_draft(folder / "draft", "dspark", target=self.target)
        self.open = ExitStack()

    def copy(self, folder: Path) -> Path:
        place = self.folder / f"copy-of-{folder.name}"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(folder, place)
        return place

    def with_config(self, folder: Path, **changes: object) -> Path:
        copy = self.copy(folder)
        config = json.loads((copy / "config.json").read_text()) | changes
        (copy / "config.json").write_text(json.dumps(config))
        return copy

    def with_tensors(self, folder: Path, change: Callable[[dict[str, np.ndarray]], None]) -> Path:
        copy = self.copy(folder)
        tensors = load_file(copy / "model.safetensors")
        change(tensors)
        save_file(tensors, copy / "model.safetensors")
        return copy

    def file(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def busy_port(self) -> int:
        """A tcp port that somebody listens at for as long as the workshop is open."""
        listener = self.open.enter_context(closing(socket.create_server(("127.0.0.1", 0))))
        return int(listener.getsockname()[1])

    def busy_path(self) -> Path:
        """A Unix socket that somebody listens at."""
        path = self.folder / "busy.sock"
        listener = self.open.enter_context(closing(socket.socket(socket.AF_UNIX)))
        listener.bind(str(path))
        listener.listen()
        self.open.callback(path.unlink)
        return path


@dataclass(frozen=True)
class WrongStart:
    """`arguments` go with a good draft and target unless they name others; `says` are parts of the line."""

    name: str
    arguments: Callable[[Workshop], list[str]]
    says: tuple[str, ...]
    needs_torch: bool = False
    alone: bool = False
    """No draft and no target are added."""


def _fixed(*words: str) -> Callable[[Workshop], list[str]]:
    return lambda _: list(words)


def _config(text: str) -> Callable[[Workshop], list[str]]:
    return lambda shop: ["--config", str(shop.file("server.toml", text))]


def _truncated(shop: Workshop) -> list[str]:
    copy = shop.copy(shop.draft)
    file = copy / "model.safetensors"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    return ["--draft", str(copy)]


def _no_tensor(shop: Workshop) -> list[str]:
    def spoil(tensors: dict[str, np.ndarray]) -> None:
        del tensors["fc.weight"]

    return ["--draft", str(shop.with_tensors(shop.draft, spoil))]


def _misshaped(shop: Workshop) -> list[str]:
    def spoil(tensors: dict[str, np.ndarray]) -> None:
        tensors["fc.weight"] = tensors["fc.weight"][:, :-1].copy()

    return ["--draft", str(shop.with_tensors(shop.draft, spoil))]


def _quantised(shop: Workshop) -> list[str]:
    def spoil(tensors: dict[str, np.ndarray]) -> None:
        tensors["lm_head.weight"] = tensors["lm_head.weight"].astype(np.int8)

    return ["--target", str(shop.with_tensors(shop.target, spoil))]


def _escaping_index(shop: Workshop) -> list[str]:
    copy = shop.copy(shop.draft)
    (copy / "model.safetensors").rename(shop.folder / "outside.safetensors")
    names = load_file(shop.folder / "outside.safetensors")
    index = {"weight_map": dict.fromkeys(names, "../outside.safetensors")}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    return ["--draft", str(copy)]


def _not_json(shop: Workshop) -> list[str]:
    copy = shop.copy(shop.draft)
    (copy / "config.json").write_text("{")
    return ["--draft", str(copy)]


def _unreadable(shop: Workshop) -> list[str]:
    # A folder in place of the file: no permission can be taken from a test that runs as root.
    copy = shop.copy(shop.draft)
    (copy / "config.json").unlink()
    (copy / "config.json").mkdir()
    return ["--draft", str(copy)]


def _taps(shop: Workshop) -> list[str]:
    return ["--draft", str(shop.with_config(shop.draft, target_layer_ids=[2, 0, 4]))]


def _other_width(shop: Workshop) -> list[str]:
    return ["--target", str(tiny_target(shop.folder / "wide", hidden=64))]


def _in_use(shop: Workshop) -> list[str]:
    return ["--bind", f"ipc://{shop.busy_path()}"]


def _keys(shop: Workshop, *, mode: int = 0o600, clients: str = "") -> list[str]:
    shutil.rmtree(shop.folder / "keys", ignore_errors=True)
    _, secret, _ = write_pair(shop.folder / "keys", "server")
    secret.chmod(mode)
    return ["--secret-key", str(secret), "--clients", str(shop.file("clients", clients))]


WRONG_STARTS = (
    WrongStart("nothing given", _fixed(), ("draft", "--bundle"), alone=True),
    WrongStart("draft without target", lambda s: ["--draft", str(s.draft)], ("target",), alone=True),
    WrongStart("missing draft folder", _fixed("--draft", "/nowhere/draft"), ("draft", "/nowhere/draft")),
    WrongStart("missing target folder", _fixed("--target", "/nowhere/target"), ("target", "/nowhere/target")),
    WrongStart(
        "a file as folder", lambda s: ["--draft", str(s.draft / "config.json")], ("draft", "found a file")
    ),
    WrongStart("folder without config", lambda s: ["--draft", str(s.folder)], ("draft", "config.json")),
    WrongStart("unreadable config", _unreadable, ("config.json", "directory")),
    WrongStart("bundle and draft", lambda s: ["--bundle", str(s.draft)], ("bundle", "not both")),
    WrongStart("unknown flag", _fixed("--colour", "red"), ("--colour",)),
    WrongStart("unknown device", _fixed("--device", "gpu"), ("device", "'gpu'", "cpu")),
    WrongStart("unknown dtype", _fixed("--dtype", "fp8"), ("dtype", "'fp8'", "bfloat16")),
    WrongStart("zero memory", _fixed("--kv-memory", "0"), ("kv_memory", "above zero")),
    WrongStart("memory in words", _fixed("--kv-memory", "lots"), ("kv_memory", "'lots'", "1GiB")),
    WrongStart("zero window", _fixed("--window", "0"), ("window", "at least 1")),
    WrongStart("window in words", _fixed("--window", "wide"), ("window", "'wide'")),
    WrongStart("no requests", _fixed("--max-requests", "0"), ("max_requests", "1 to 4096")),
    WrongStart("depth beyond all", _fixed("--max-depth", "99"), ("max_depth", "1 to 64")),
    WrongStart("odd block size", _fixed("--block-size", "17"), ("block_size", "16, 32, 64, 128")),
    WrongStart("no threads", _fixed("--threads", "0"), ("threads", "1 to 1024")),
    WrongStart("bad namespace", _fixed("--namespace", "a b"), ("namespaces", "letters")),
    WrongStart("bad http address", _fixed("--http", "8091"), ("http", "HOST:PORT")),
    WrongStart("missing config file", _fixed("--config", "/nowhere.toml"), ("config", "/nowhere.toml")),
    WrongStart("config that is no TOML", _config("kv_memory = = 1"), ("config", "server.toml", "TOML")),
    WrongStart("unknown config key", _config("colour = 1"), ("config", "'colour'", "one of")),
    WrongStart("bad config value", _config("window = -5"), ("window", "-5")),
    WrongStart("http address in use", lambda s: ["--http", f"127.0.0.1:{s.busy_port()}"], ("http", "in use")),
    WrongStart("ipc address in use", _in_use, ("bind", "in use")),
    WrongStart(
        "tcp address in use", lambda s: ["--bind", f"tcp://127.0.0.1:{s.busy_port()}"], ("bind", "in use")
    ),
    WrongStart("address of another kind", _fixed("--bind", "udp://127.0.0.1:1"), ("bind", "ipc://PATH")),
    WrongStart("keys without clients", lambda s: _keys(s)[:2], ("clients", "go together")),
    WrongStart(
        "a secret that others read", lambda s: _keys(s, mode=0o644), ("server.secret", "mode 0644", "0600")
    ),
    WrongStart("a wrong list of clients", lambda s: _keys(s, clients="a b"), ("clients, line 1", "Z85")),
    WrongStart(
        "keys and plain text",
        lambda s: [*_keys(s), "--insecure-plain-text"],
        ("insecure_plain_text", "not both"),
    ),
    WrongStart("keys and namespaces", lambda s: [*_keys(s), "--namespace", "x"], ("namespaces", "clients")),
    WrongStart(
        "no such key", lambda s: ["--secret-key", "/nowhere/k", *_keys(s)[2:]], ("/nowhere/k", "No such")
    ),
    WrongStart("a share above all", _fixed("--session-requests", "65"), ("session_requests", "max_requests")),
    WrongStart("open to the network", _fixed("--bind", "tcp://0.0.0.0:0"), ("bind", "insecure_plain_text")),
    WrongStart("no GPU", _fixed("--device", "cuda:99"), ("device", "cuda:99"), needs_torch=True),
    WrongStart(
        "unknown family",
        lambda s: ["--draft", str(s.with_config(s.draft, architectures=["GPT2LMHeadModel"]))],
        ("config.json", "architectures", "GPT2LMHeadModel"),
        needs_torch=True,
    ),
    WrongStart("config that is no JSON", _not_json, ("config.json",), needs_torch=True),
    WrongStart("unsorted taps", _taps, ("config.json", "[2, 0, 4]"), needs_torch=True),
    WrongStart(
        "too little memory", _fixed("--kv-memory", "2KiB"), ("kv_memory", "at least"), needs_torch=True
    ),
    WrongStart(
        "depth beyond the draft", _fixed("--max-depth", "9"), ("max_depth", "1 to 4"), needs_torch=True
    ),
    WrongStart("target of other width", _other_width, ("hidden_size", "64", "32"), needs_torch=True),
    WrongStart("truncated safetensors", _truncated, ("model.safetensors",), needs_torch=True),
    WrongStart("missing tensor", _no_tensor, ("fc.weight",), needs_torch=True),
    WrongStart("tensor of other shape", _misshaped, ("fc.weight", "95", "96"), needs_torch=True),
    WrongStart("quantised head", _quantised, ("lm_head.weight", "I8"), needs_torch=True),
    WrongStart("index that leaves the folder", _escaping_index, ("../outside",), needs_torch=True),
    WrongStart(
        "draft as bundle", lambda s: ["--bundle", str(s.draft)], ("embed",), needs_torch=True, alone=True
    ),
)


def arguments(start: WrongStart, shop: Workshop) -> list[str]:
    """The command line's words for one wrong start."""
    words = start.arguments(shop)
    if start.alone:
        return words
    for name, folder in (("--draft", shop.draft), ("--target", shop.target)):
        if name not in words:
            words += [name, str(folder)]
    return words


def faults(start: WrongStart, folder: Path) -> Iterator[str]:
    """What is wrong with how `sidedraft serve` takes a wrong start; nothing when all is well."""
    shop = Workshop(folder)
    with shop.open:
        words = arguments(start, shop)
        for name, value in (("--bind", f"ipc://{folder}/s.sock"), ("--http", "127.0.0.1:0")):
            if name not in words:
                words += [name, value]
        before = sockets(folder)
        process = subprocess.Popen(
            command("serve", *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(folder),
            start_new_session=True,
        )
        try:
            _, err = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            yield "does not end"
            return
        if process.returncode <= 0:
            yield f"exit status {process.returncode}"
        # Progress may come before it: a fault in the last tensor is found late.
        lines = [line for line in err.splitlines() if not line.endswith(" %")]
        if len(lines) != 1 or not lines[0].startswith("sidedraft: error: "):
            yield f"not one clear line: {err!r}"
        for part in start.says:
            if part not in err:
                yield f"{part!r} is not in {err!r}"
        if sockets(folder) != before:
            yield f"leaves {sockets(folder)}"
        if _alive(process.pid):
            yield "leaves a process"


def _alive(group: int) -> bool:
    """Whether any process is left of a session."""
    found = subprocess.run(
        ["ps", "-o", "pid=", "-g", str(group)], capture_output=True, text=True, check=False
    )
    return bool(found.stdout.strip())
