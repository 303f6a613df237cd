"""What a verifier reports of itself (`messages.Report`): names, meanings and histogram buckets."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

BOUNDS_US: Final = (
    50,
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
)
"""Upper bounds, in microseconds, of every stage's buckets; one more bucket is for what is beyond."""

STAGES: Mapping[str, str] = MappingProxyType(
    {
        "metadata_d2h": "the batch's lengths and positions brought to the host",
        "request_plan": "checks and bookkeeping of a submit",
        "context_gather": "accepted rows gathered from the target's aux states",
        "context_d2h": "rows converted and copied into send buffers, waits for them included",
        "serialize": "headers encoded",
        "rpc_roundtrip": "from the first message handed to the transport until the step was settled",
        "server_queue": "on the server: from arrival until the engine took it up",
        "server_ingest": "on the server: writing context rows",
        "server_propose": "on the server: the query pass",
        "server_total": "on the server: from arrival until the answer was handed to the transport",
        "tokens_h2d": "draft tokens copied to where the engine wants them",
        "client_total": "from submit until the step was settled",
    }
)
"""Stages of a proposal, by the names the field uses, and what each covers."""

COUNTS: Mapping[str, str] = MappingProxyType(
    {
        "steps": "steps submitted",
        "asked": "drafts a step waited for",
        "drafted": "drafts that came in time and passed the checks",
        "late": "drafts asked for and not there by the deadline",
        "behind": "drafts not asked for because an earlier answer was missing",
        "resumed": "requests that caught up, in the same generation",
        "expired": "drafts the server did not compute because their time was up",
        "fillers": "places in the engine's draft tensors that got a filler where a draft was wanted",
        "lost": "requests whose state on the server became uncertain",
        "reopened": "requests opened again",
        "refused": "advances the server refused",
        "refused_sends": "messages the transport did not take",
        "breaker_opened": "times the breaker opened",
        "breaker_closed": "times the breaker closed",
        "probes": "proposals sent to learn whether lateness is over",
        "sessions": "sessions begun",
        "session_losses": "sessions ended",
        "epoch_changes": "sessions with a server that had lost its memory",
        "handshake_failures": "handshakes without a session",
        "stale_messages": "messages of another session, dropped",
        "stale_answers": "answers for a request that had moved on, dropped",
        "repeated_answers": "answers for what was answered already, dropped",
        "bad_replies": "answers that failed a check",
        "bad_messages": "messages that could not be decoded",
        "failures": "failures the server told of",
        "crashes": "unexpected errors of the I/O thread",
        "heartbeats": "signs of life sent",
        "rows_sent": "rows sent",
        "rows_skipped": "rows not sent because no draft of their request can see them",
        "rows_dropped": "rows not sent for want of a buffer or of time: holes",
        "rows_known": "context rows the server had, summed over the drafts it gave",
        "rows_missing": "holes between the first of them and the draft's base",
        "bytes_control": "payload bytes sent on the control connection",
        "bytes_bulk": "payload bytes sent on the bulk connection",
        "bytes_skipped": "bytes that the rows not sent would have had",
        "bytes_rows": "bytes of rows among the payload bytes; the rest are token ids",
        "buffers_abandoned": "send buffers given up because their fate was unknown",
    }
)
"""Numbers that only grow in a verifier's life, and what each counts."""
