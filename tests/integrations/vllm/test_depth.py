"""The shared word, and the scheduler's table in front of it."""

from __future__ import annotations

import gc
import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import sidedraft
from sidedraft.integrations.vllm import depth
from sidedraft.integrations.vllm.config import VllmSettings
from sidedraft.integrations.vllm.depth import DepthLookup, DepthWord, attach, publish

SETTINGS = VllmSettings(address="ipc:///tmp/draft.sock")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "sidedraft"


def config(ranks: int = 1, index: int = 0, name: str = "engine") -> Any:
    parallel = SimpleNamespace(data_parallel_size=ranks, data_parallel_index=index)
    return SimpleNamespace(instance_id=name, parallel_config=parallel)


def scheduler(vllm_config: Any, table: list[int] | None = None, most: int = 5) -> Any:
    return SimpleNamespace(vllm_config=vllm_config, dynamic_sd_lookup=table, num_spec_tokens=most)


def test_the_scheduler_sees_what_the_rank_that_talks_writes(folder: Path) -> None:
    word = publish(config())
    assert word is not None
    assert [path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())] == [0o700, 0o600]
    one = scheduler(config())
    attach(one, SETTINGS)
    assert not list(folder.iterdir()), "both have it: its name is of no more use"
    assert one.dynamic_sd_lookup[1] == 0, "nobody has said yet that there will be drafts"
    for value, seen in ((4, 4), (0, 0), (64, 5), (-3, 0)):
        word.set(value)
        assert one.dynamic_sd_lookup[8] == seen


def test_another_process_reads_the_word(folder: Path) -> None:
    word = publish(config())
    assert word is not None
    word.set(3)
    program = (
        "import sys; from pathlib import Path\n"
        "from sidedraft.integrations.vllm.depth import DepthWord\n"
        "word = DepthWord(Path(sys.argv[1]), create=False)\n"
        "print(word.get(), flush=True); sys.stdin.readline(); print(word.get())\n"
    )
    (path,) = folder.iterdir()
    source = str(Path(sidedraft.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": source},
        text=True,
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        assert reader.stdout.readline() == "3\n"
        word.set(0)
        reader.stdin.write("\n")
        reader.stdin.flush()
        assert reader.stdout.readline() == "0\n"


def test_the_configured_table_is_never_exceeded() -> None:
    word = SimpleNamespace(get=lambda: 4)
    lookup = DepthLookup([0, 5, 3, 0], 5, word)  # type: ignore[arg-type]
    assert [lookup[batch] for batch in (1, 2, 3)] == [4, 3, 0]


@pytest.mark.parametrize("table", [None, [0, 5, 3]])
def test_under_data_parallelism_everything_stays_as_configured(
    table: list[int] | None, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert publish(config(ranks=2)) is None
    one = scheduler(config(ranks=2), table)
    with caplog.at_level(logging.WARNING):
        attach(one, SETTINGS)
    assert one.dynamic_sd_lookup is table
    assert "data parallelism" in caplog.text


def test_independent_ranks_of_one_configuration_have_a_word_each() -> None:
    words = [publish(config(index=index)) for index in (0, 1)]
    lookups = [scheduler(config(index=index)) for index in (0, 1)]
    for one in lookups:
        attach(one, SETTINGS)
    assert words[1] is not None
    words[1].set(5)
    assert [one.dynamic_sd_lookup[1] for one in lookups] == [0, 5]


def test_a_scheduler_without_a_word_keeps_its_depth(caplog: pytest.LogCaptureFixture) -> None:
    one = scheduler(config(name="elsewhere"), [0, 5])
    with caplog.at_level(logging.WARNING):
        attach(one, SETTINGS)
    assert one.dynamic_sd_lookup == [0, 5]
    assert "fillers" in caplog.text


def test_what_a_killed_engine_left_behind_is_replaced(folder: Path) -> None:
    folder.mkdir(mode=0o700)
    stale = depth._path(config())
    stale.write_bytes(b"\x05\0\0\0")
    word = publish(config())
    assert word is not None
    assert word.get() == 0
    assert stale.read_bytes() == b"\0\0\0\0"


def test_a_word_that_nobody_read_goes_with_its_writer(folder: Path) -> None:
    word = publish(config())
    assert list(folder.iterdir())
    del word
    gc.collect()
    assert not list(folder.iterdir())


def test_a_folder_that_cannot_be_trusted_costs_the_word_and_not_the_start(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder.mkdir()
    folder.chmod(0o777)
    with caplog.at_level(logging.WARNING):
        assert publish(config()) is None
    assert "lets others write" in caplog.text


def test_a_link_in_the_words_place_is_not_followed(folder: Path, tmp_path: Path) -> None:
    folder.mkdir(mode=0o700)
    aim = tmp_path / "aim"
    aim.write_bytes(b"\0\0\0\0")
    depth._path(config()).symlink_to(aim)
    with pytest.raises(OSError, match="symbolic links"):
        DepthWord(depth._path(config()), create=False)
