"""`/metrics`: a server's own figures, and those that its verifiers report, under their labels.

Numbers only: no prompt, no token, no row, no session's secret.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

import sidedraft
from sidedraft.metrics import snapshot
from sidedraft.metrics.exposition import Exposition
from sidedraft.metrics.families import Families
from sidedraft.server import verifier_metrics
from sidedraft.server.labels import Labels
from sidedraft.server.phases import Phase
from sidedraft.server.status import StatusBoard

IO_COUNTERS: Mapping[str, tuple[str, str]] = {
    "messages": ("messages", "Whole messages received."),
    "bytes_received": ("received_bytes", "Bytes received, headers included."),
    "advances": ("advances", "Advances received, refused ones included."),
    "advances_refused": ("advances_refused", "Advances that broke a rule before they reached the engine."),
    "messages_refused": ("messages_refused", "Messages that could not be used at all."),
    "stale": ("stale", "Messages of another session or epoch, and answers whose session had ended."),
    "sessions_opened": ("sessions_opened", "Sessions begun."),
    "sessions_refused": ("sessions_refused", "Hellos that got no session."),
    "sessions_expired": ("sessions_expired", "Sessions ended by their lease."),
    "sends_refused": (
        "sends_refused",
        "Messages that could not be queued: the peer is gone or does not read.",
    ),
}
"""Field of `IoCounters` -> metric (`sidedraft_server_*`, without `_total`) and its meaning."""

ENGINE_COUNTERS: Mapping[str, tuple[str, str]] = {
    "steps": ("steps", "Engine steps completed."),
    "errors": ("errors", "Engine steps that an exception ended."),
    "slices": ("ingest_slices", "Engine steps that only took in context rows."),
    "proposals": ("proposals", "Drafts given."),
    "expired": ("expired", "Proposals not computed because their budget was used up."),
    "superseded": ("superseded", "Proposals not computed because a later advance had arrived."),
    "opened": ("opened", "Requests opened."),
    "refused": ("refused", "Advances refused by the engine."),
    "forwards": ("forwards", "Query passes; each may serve many proposals."),
    "rows_received": ("received_rows", "Context rows received."),
    "rows_computed": ("computed_rows", "Context rows written from what was received."),
    "rows_restored": ("index_hit_rows", "Context rows found in the prefix index instead."),
    "rows_dropped": ("duplicate_rows", "Context rows received for positions that had one."),
    "rows_unseen": ("unseen_rows", "Context rows received that no proposal of their request can see."),
    "rows_without_room": ("hole_rows", "Context rows received that the pool had no place for."),
    "blocks_published": ("blocks_published", "Blocks entered into the prefix index."),
    "collisions": ("collisions", "Blocks kept private because the index had an equal one."),
    "evictions": ("evictions", "Blocks taken out of the prefix index for their memory."),
}
"""Name in the engine's counts -> metric (`sidedraft_engine_*`, without `_total`) and its meaning."""

ENGINE_GAUGES: Mapping[str, tuple[str, str]] = {
    "queued": ("queued", "Advances that wait for the engine."),
    "most_waited": ("proposal_slices_max", "The most ingest slices that a proposal has waited for."),
    "requests": ("requests", "Requests open."),
    "index": ("index_blocks", "Blocks in the prefix index."),
    "blocks_total": ("pool_blocks", "Blocks of the pool."),
}
BLOCK_STATES = ("free", "kept", "held", "pinned")


class ServerMetrics:
    """One registry for one server; any thread may render."""

    def __init__(self, board: StatusBoard) -> None:
        self._board = board
        self._labels = Labels()
        self._lock = threading.Lock()
        self._exposition = Exposition(self.collect)

    def render(self, accept: str) -> tuple[bytes, str]:
        """Text and content type for an Accept header."""
        return self._exposition.render(accept)

    def collect(self) -> Families:
        """Everything there is to show right now."""
        families = Families()
        self._server(families)
        self._io(families)
        self._engine(families)
        self._verifiers(families)
        return families

    def _server(self, families: Families) -> None:
        board, facts = self._board, self._board.facts
        info = {name: str(facts.get(name, "")) for name in ("family", "device", "dtype")}
        text = "1; its labels say what runs here."
        families.gauge("sidedraft_server_info", text, 1, version=sidedraft.__version__, **info)
        families.gauge("sidedraft_server_ready", "1 while proposals can be served.", board.ready()[0])
        for phase in Phase:
            here = board.lifecycle.phase is phase
            families.gauge("sidedraft_server_phase", "1 for the present phase.", here, phase=phase.value)
        sessions = 0 if board.sessions is None else len(board.sessions)
        families.gauge("sidedraft_server_sessions", "Sessions open.", sessions)

    def _io(self, families: Families) -> None:
        counters = self._board.io_counters
        for field, value in snapshot(counters).items():
            name, text = IO_COUNTERS[field]
            families.counter(f"sidedraft_server_{name}", text, value)
        for stage, times in counters.stages.histograms.items():
            text = "Where the time of engine steps with proposals went, arrival included."
            counts = list(times.counts)
            families.stage("sidedraft_server_stage_seconds", text, counts, times.total, stage=stage)

    def _engine(self, families: Families) -> None:
        engine = self._board.engine
        if engine is None:
            return
        counts = {"queued": engine.queued(), **engine.counts()}
        for field, (name, text) in ENGINE_COUNTERS.items():
            families.counter(f"sidedraft_engine_{name}", text, counts[field])
        for field, (name, text) in ENGINE_GAUGES.items():
            families.gauge(f"sidedraft_engine_{name}", text, counts[field])
        for state in BLOCK_STATES:
            text = "Blocks of the pool by state; kept ones are found by the index and held by no request."
            families.gauge("sidedraft_engine_blocks", text, counts[f"blocks_{state}"], state=state)

    def _verifiers(self, families: Families) -> None:
        reported = [(s, s.report) for s in self._board.sessions or () if s.report is not None]
        with self._lock:
            labels = dict(self._labels.assign({session.owner: session.verifier for session, _ in reported}))
        for session, report in reported:
            depth = session.agreement.max_depth
            verifier_metrics.export(families, report, labels[session.owner], depth)
