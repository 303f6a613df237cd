"""Thousands of requests leave nothing behind."""

from __future__ import annotations

import gc

import pytest

from support.many_requests import RESIDENT, ManyRequests, resident_bytes


@pytest.mark.slow
def test_memory_stays_flat_over_many_requests() -> None:
    life = ManyRequests()
    life.run(1000)
    gc.collect()
    before, objects = resident_bytes(), len(gc.get_objects())
    life.run(1500)
    gc.collect()
    assert (resident_bytes() - before) / 1.5 < 1_000_000
    assert len(gc.get_objects()) - objects < 500
    stats = life.client.engine.stats()
    assert stats.requests == RESIDENT
    assert stats.index <= stats.blocks_total
    assert stats.evictions > 1000
    assert life.client.engine.allocated_bytes <= life.client.engine.plan.kv_memory
