"""Thousands of requests leave nothing behind."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from support.many_requests import RESIDENT, ManyRequests

CHECK = Path(__file__).resolve().parents[2] / "checks" / "engine_memory.py"


@pytest.mark.slow
def test_objects_stay_few_over_many_requests() -> None:
    life = ManyRequests()
    life.run(300)
    gc.collect()
    objects = len(gc.get_objects())
    life.run(700)
    gc.collect()
    assert len(gc.get_objects()) - objects < 500
    stats = life.client.engine.stats()
    assert stats.requests == RESIDENT
    assert stats.index <= stats.blocks_total
    assert stats.evictions > 500
    assert life.client.engine.allocated_bytes <= life.client.engine.plan.kv_memory


@pytest.mark.slow
def test_memory_stays_flat_over_many_requests() -> None:
    """In a process of its own: what other tests freed would blur the figure."""
    done = subprocess.run(
        [sys.executable, str(CHECK), "--requests", "2000"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
