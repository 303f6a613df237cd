"""Settings: what is refused, and that the error says which field, what it was and what it should be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sidedraft.settings import (
    GIB,
    MIB,
    EngineSettings,
    ServerSettings,
    SettingsError,
    VerifierSettings,
    WireLimits,
    build,
    cache_directory,
    format_bytes,
    parse_bytes,
    read_file,
    runtime_directory,
)

WEIGHTS = {"draft": "d", "target": "t"}

BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"device": "gpu"}, "device", "auto, cpu, cuda or cuda:N"),
    ({"dtype": "fp8"}, "dtype", "one of auto, float32, bfloat16, float16"),
    ({"kv_memory": 0}, "kv_memory", "above zero"),
    ({"window": 0}, "window", "at least 1"),
    ({"max_requests": 0}, "max_requests", "1 to 4096"),
    ({"max_requests": "many"}, "max_requests", "1 to 4096"),
    ({"max_depth": 65}, "max_depth", "1 to 64"),
    ({"block_size": 48}, "block_size", "one of 16, 32, 64, 128"),
    ({"threads": True}, "threads", "1 to 1024"),
    ({"http": "8091"}, "http", "HOST:PORT"),
    ({"http": "127.0.0.1:70000"}, "http", "65535"),
    ({"namespaces": ["a b"]}, "namespaces", "names"),
    ({"namespaces": []}, "namespaces", "names"),
    ({"lease_ms": 300}, "lease_ms", "two heartbeats"),
    ({"bundle": "b"}, "bundle", "not both"),
    ({"colour": 1}, "colour", "one of the settings"),
]


@pytest.mark.parametrize(("change", "field", "expected"), BAD, ids=[repr(b[0]) for b in BAD])
def test_a_bad_value_names_field_value_and_what_was_expected(
    change: dict[str, Any], field: str, expected: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        build(ServerSettings, WEIGHTS | change)
    assert caught.value.field == field
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_direct_construction_is_checked_like_any_other() -> None:
    with pytest.raises(SettingsError, match="kv_memory"):
        ServerSettings(draft="d", target="t", kv_memory=-1)
    with pytest.raises(SettingsError, match="deadline_floor"):
        VerifierSettings(deadline_floor=1.0, deadline_ceiling=0.5)
    with pytest.raises(SettingsError, match="bulk_credit"):
        WireLimits(bulk_credit=1)
    with pytest.raises(SettingsError, match="block_size"):
        EngineSettings(block_size=7)  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [{}, {"draft": "d"}, {"target": "t"}])
def test_weights_must_be_named(given: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match=r"draft|target"):
        build(ServerSettings, given)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("http", "::1:80"),
        ("http", "a b:80"),
        ("http", "a\0b:80"),
        ("http", "127.0.0.1:\u0661"),
        ("http", "127.0.0.1:80\n"),
        ("device", "cpu\n"),
        ("namespaces", ("default\n",)),
    ],
)
def test_text_that_only_looks_right_is_refused(field: str, value: object) -> None:
    with pytest.raises(SettingsError, match=field):
        build(ServerSettings, WEIGHTS | {field: value})


def test_a_long_value_is_cut_in_the_error() -> None:
    with pytest.raises(SettingsError) as caught:
        ServerSettings(draft="d", target="t", device="x" * 10_000)
    assert len(str(caught.value)) < 300


def test_the_engine_part_carries_the_servers_values() -> None:
    settings = ServerSettings(
        bundle="b", kv_memory=3 * MIB, max_requests=5, max_depth=2, window=7, block_size=16
    )
    assert settings.engine() == EngineSettings(
        kv_memory=3 * MIB, max_requests=5, max_depth=2, window=7, block_size=16
    )
    assert settings.wire().requests == 5


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1GiB", GIB),
        ("512 MiB", 512 * MIB),
        ("1.5gib", GIB * 3 // 2),
        ("2GB", 2 * 10**9),
        ("77", 77),
        (77, 77),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str | int, count: int) -> None:
    assert parse_bytes("kv_memory", text) == count


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1 zib", "1e9", "0x10", "9" * 400 + "GiB", "\u0661", True])
def test_other_sizes_are_refused(text: str | int) -> None:
    with pytest.raises(SettingsError, match="kv_memory"):
        parse_bytes("kv_memory", text)


def test_text_is_read_as_the_number_it_stands_for() -> None:
    settings = build(ServerSettings, WEIGHTS | {"kv_memory": "3MiB", "window": "7", "max_depth": "2"})
    assert (settings.kv_memory, settings.window, settings.max_depth) == (3 * MIB, 7, 2)


def test_a_file_is_a_flat_table_with_either_dash(tmp_path: Path) -> None:
    file = tmp_path / "server.toml"
    file.write_text("kv-memory = '1GiB'\nmax_requests = 3\nnamespaces = ['a', 'b']\n")
    values = read_file(file, ServerSettings.__struct_fields__)
    settings = build(ServerSettings, WEIGHTS | values)
    assert (settings.kv_memory, settings.max_requests, settings.namespaces) == (GIB, 3, ("a", "b"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kv_memory =", "TOML"),
        ("colour = 1", "'colour'"),
        ("[server]\nwindow = 1", "'server'"),
        ("kv_memory = 1\nkv-memory = 1", "twice"),
    ],
)
def test_a_bad_file_is_named(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / ("long" * 20) / "server.toml"
    file.parent.mkdir()
    file.write_text(text)
    with pytest.raises(SettingsError) as caught:
        read_file(file, ServerSettings.__struct_fields__)
    assert str(file) in str(caught.value)
    assert said in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        read_file(tmp_path / "none.toml", ())


def test_sizes_are_shown_in_binary_units() -> None:
    assert [format_bytes(n) for n in (3, 2048, MIB, 5 * GIB)] == ["3 B", "2.00 KiB", "1.00 MiB", "5.00 GiB"]


def test_folders_follow_the_environment() -> None:
    assert str(cache_directory({"XDG_CACHE_HOME": "/c"})) == "/c/sidedraft"
    assert str(runtime_directory({"XDG_RUNTIME_DIR": "/r"})) == "/r/sidedraft"
    assert runtime_directory({}).parts[1] == "tmp"


def test_settings_load_neither_torch_nor_zmq() -> None:
    program = "import sys, sidedraft.settings; sys.exit('torch' in sys.modules or 'zmq' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], timeout=60).returncode == 0
