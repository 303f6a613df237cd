"""The demo end to end on tiny models, and what it says when something is missing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sidedraft.cli import main as cli
from sidedraft.cli.demonstration.assets import find_assets
from sidedraft.cli.errors import CommandError
from sidedraft.cli.server_process import serving
from support.checkpoints import tiny_draft, tiny_target
from support.serve_process import PATIENCE, command, environment, wait_for
from support.text import tiny_tokenizer


def kind(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "domain": True, "max_new_tokens": 12, "prompts": ["red fox", "dog"], **more}


@pytest.fixture
def models(tmp_path: Path) -> tuple[Path, Path]:
    """A target and assets with a draft for it."""
    target = tiny_target(tmp_path / "target")
    tiny_tokenizer(target, chat=False)
    assets = tmp_path / "assets"
    tiny_draft(assets / "draft", "dspark", target=target)
    kinds = [kind("known"), kind("foreign", domain=False, prompts=["fox"])]
    (assets / "prompts.json").write_text(json.dumps(kinds))
    return target, assets


@pytest.mark.slow
def test_both_arms_run_and_the_result_is_written(models: tuple[Path, Path], tmp_path: Path) -> None:
    target, assets = models
    words = command("demo", "--target", str(target), "--assets", str(assets), "--threads", "1")
    done = subprocess.run(
        [*words, "--json", str(tmp_path / "r.json")],
        env=environment(tmp_path), capture_output=True, text=True, timeout=PATIENCE * 2, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "r.json").read_text())
    assert [(one["name"], one["prompts"]) for one in found["kinds"]] == [("known", 2), ("foreign", 1)]
    assert found["ok"]
    assert all(one["identical"] + one["ties"] == one["prompts"] for one in found["kinds"])
    assert len(found["kinds"][0]["speed_ups"]) == 2
    assert found["kinds"][0]["acceptance_length"] >= 1
    assert {"target_forward", "client_total"} <= set(found["stages_ms"])
    assert "identical" in done.stdout
    assert "mean speed-up" in done.stdout


@pytest.mark.slow
def test_a_killed_demo_leaves_no_server(models: tuple[Path, Path], tmp_path: Path) -> None:
    target, assets = models
    (assets / "prompts.json").write_text(json.dumps([kind("known", max_new_tokens=4000)]))
    temporary = tmp_path / "t"
    temporary.mkdir()
    demo = subprocess.Popen(
        command("demo", "--target", str(target), "--assets", str(assets)),
        env=environment(tmp_path) | {"TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        wait_for(lambda: bool(list(temporary.glob("sidedraft-*/serve.log"))))
        wait_for(lambda: bool(_children(demo.pid)))
        [server] = _children(demo.pid)
        demo.send_signal(signal.SIGKILL)
        demo.wait(PATIENCE)
        wait_for(lambda: not _alive(server))
    finally:
        demo.kill()
        demo.wait()


def test_without_assets_it_says_where_they_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "--assets", str(tmp_path)]) == 2
    [line] = capsys.readouterr().err.strip().splitlines()
    assert f"no demo assets in {tmp_path}" in line
    assert "--assets DIR" in line


def test_bad_prompts_name_file_and_field(models: tuple[Path, Path]) -> None:
    _, assets = models
    (assets / "prompts.json").write_text(json.dumps([kind("k", prompts=[])]))
    with pytest.raises(CommandError, match=r"prompts\.json.*prompts"):
        find_assets(assets)


def test_the_checkouts_own_assets_are_complete() -> None:
    assets = find_assets(None)
    assert [one.name for one in assets.kinds] == ["trained-on", "held-out", "unrelated"]
    assert sum((assets.draft / name).stat().st_size for name in os.listdir(assets.draft)) < 26e6


@pytest.mark.slow
def test_a_server_that_cannot_start_is_reported(models: tuple[Path, Path], tmp_path: Path) -> None:
    target, assets = models
    with serving(assets / "draft", target, ("--kv-memory", "1")) as server:
        server.process.wait(PATIENCE)
        with pytest.raises(CommandError, match="ended with status 2: sidedraft: error"):
            server.check()


def _children(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(word) for word in path.read_text().split()]


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
