"""Counters of a process; exporting them is up to who owns them."""

from sidedraft.metrics.counters import Counter, snapshot

__all__ = ["Counter", "snapshot"]
