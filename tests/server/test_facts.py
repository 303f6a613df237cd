"""What an operator set is what verifiers are told."""

from __future__ import annotations

from sidedraft.server.facts import server_facts
from sidedraft.server.loader import Loaded
from sidedraft.settings import ServerSettings
from support.server_bench import ServerBench


def test_every_handshake_carries_the_operators_settings() -> None:
    bench = ServerBench(requests=5)
    settings = ServerSettings(
        bundle="b",
        max_requests=5,
        namespaces=("a", "b"),
        strict_identity=True,
        heartbeat_ms=70,
        lease_ms=900,
    )
    facts = server_facts(settings, Loaded(bench.draft, bench.engine, bench.facts.target), epoch=9)
    assert (facts.epoch, facts.namespaces, facts.strict_identity) == (9, frozenset({"a", "b"}), True)
    assert (facts.heartbeat_ms, facts.lease_ms, facts.limits.requests) == (70, 900, 5)
    assert (facts.max_depth, facts.limits.context) == (bench.shape.max_depth, bench.engine.plan.max_position)
