"""A server's two loops in virtual time, with what operators are shown of it."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from sidedraft.server.prometheus import ServerMetrics
from sidedraft.server.status import StatusBoard, numbers
from sidedraft.wire import messages as m
from sidedraft.wire.figures import BOUNDS_US, COUNTS, STAGES
from support.server_bench import ServerBench
from support.wire_peer import WirePeer


class Engine:
    """What the engine thread publishes, of the bench's engine."""

    failures = 0
    step_began = None

    def __init__(self, bench: ServerBench) -> None:
        self._bench = bench

    def queued(self) -> int:
        return self._bench.engine_loop.queued

    def counts(self) -> dict[str, Any]:
        stats = numbers(self._bench.engine.stats())
        return {**stats.pop("counters"), **self._bench.engine_loop.counts(), **stats}


class Scene:
    """`loaded`: sessions are possible, and there is an engine."""

    def __init__(self, *, loaded: bool = True) -> None:
        self.bench = bench = ServerBench()
        self.board = StatusBoard(
            bench.lifecycle,
            bench.counters,
            clock=bench.clock,
            started=0.0,
            sessions=bench.dispatcher.sessions,
        )
        if loaded:
            bench.open()
            self.board.engine = Engine(bench)
        self.metrics = ServerMetrics(self.board)

    def scrape(self) -> dict[str, float]:
        """Samples by `name{label="value"}`."""
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(self.metrics.render("")[0].decode()):
            for sample in family.samples:
                labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
                key = f"{sample.name}{{{labels}}}" if labels else sample.name
                assert key not in found
                found[key] = sample.value
        return found

    def report(self, peer: WirePeer, **changes: Any) -> None:
        """The peer reports figures that are easy to recognise, some of them changed."""
        fields: dict[str, Any] = {
            "breaker": "closed",
            "requests": 3,
            "behind": 1,
            "deadline_us": 40_000,
            "counts": dict.fromkeys(COUNTS, 7) | {"bytes_rows": 10},
            "stages": {name: stage(4, 250) for name in STAGES},
            "drafted": (10, 10),
            "accepted": (6, 2),
        }
        peer.say(m.Report(**peer.ids, **(fields | changes)))
        self.bench.turn()


def stage(steps: int, microseconds: int) -> m.StageTimes:
    """So many steps that took the same time."""
    counts = [0] * (len(BOUNDS_US) + 1)
    counts[next(i for i, bound in enumerate(BOUNDS_US) if bound >= microseconds)] = steps
    return m.StageTimes(counts=tuple(counts), total_us=steps * microseconds)
