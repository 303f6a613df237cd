"""The draft side's memory and batching: requests, blocks, the prefix index, query passes (docs/engine.md)."""

from sidedraft.engine.engine import Engine
from sidedraft.engine.launch import InFlight
from sidedraft.engine.ordering import Sequencer
from sidedraft.engine.plan import MemoryPlan, plan_memory
from sidedraft.engine.stats import EngineCounters, EngineStats
from sidedraft.engine.work import Work

__all__ = [
    "Engine",
    "EngineCounters",
    "EngineStats",
    "InFlight",
    "MemoryPlan",
    "Sequencer",
    "Work",
    "plan_memory",
]
