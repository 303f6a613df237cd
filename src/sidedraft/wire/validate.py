"""Rules on messages without columns: ranges, names, and fields that depend on each other.

The same rules run before sending and after receiving, so that a fault is found at the end that made it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType

import msgspec
from msgspec import UNSET

from sidedraft.wire import messages as m
from sidedraft.wire.batch import Advances, Answers, Timings
from sidedraft.wire.errors import Code, WireError
from sidedraft.wire.figures import BOUNDS_US
from sidedraft.wire.limits import (
    MAX_BATCH,
    MAX_DEPTH,
    MAX_DETAIL,
    MAX_ID,
    MAX_MICROSECONDS,
    MAX_NAME,
    MAX_PAYLOAD,
    MAX_POSITION,
    MAX_VOCABULARY,
    MAX_WIDTH,
)

IDENTITIES = ("full", "partial")

Ranges = Mapping[str, tuple[int, int]]

_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{MAX_NAME}}}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_IDS: Ranges = {"session": (1, MAX_ID), "epoch": (1, MAX_ID)}
_SERIAL: Ranges = {**_IDS, "serial": (0, MAX_ID)}
_DURATION = (1, MAX_MICROSECONDS // 1000)

RANGES: Mapping[type[msgspec.Struct], Ranges] = MappingProxyType(
    {
        m.TargetFacts: {"hidden_size": (1, MAX_WIDTH), "vocab_size": (1, MAX_VOCABULARY)},
        m.DraftFacts: {"max_depth": (1, MAX_DEPTH)},
        m.Hello: {
            "protocol": (1, MAX_ID),
            "max_depth": (1, MAX_DEPTH),
            "max_position": (1, MAX_POSITION),
        },
        m.SessionLimits: {
            "control_payload": (1, MAX_PAYLOAD),
            "bulk_payload": (1, MAX_PAYLOAD),
            "bulk_credit": (1, MAX_ID),
            "requests": (1, MAX_ID),
            "batch": (1, MAX_BATCH),
            "context": (1, MAX_POSITION),
        },
        m.Welcome: {
            **_IDS,
            "minor": (0, MAX_ID),
            "max_depth": (1, MAX_DEPTH),
            "heartbeat_ms": _DURATION,
            "lease_ms": _DURATION,
        },
        m.Heartbeat: _SERIAL,
        m.StageTimes: {"total_us": (0, MAX_ID)},
        m.Report: {
            **_IDS,
            "requests": (0, MAX_ID),
            "behind": (0, MAX_ID),
            "deadline_us": (0, MAX_ID),
        },
        m.Pulse: {**_SERIAL, "progress": (0, MAX_ID), "queued": (0, MAX_ID)},
        m.Credit: {**_IDS, "bytes": (1, MAX_ID)},
        m.Release: _IDS,
        m.Goodbye: _IDS,
        m.Failure: {"session": (0, MAX_ID), "epoch": (1, MAX_ID)},
        Timings: {
            **dict.fromkeys(("queue", "ingest", "propose", "server"), (0, MAX_MICROSECONDS)),
            "batch": (0, MAX_BATCH),
            "slices": (0, MAX_ID),
        },
        Advances: {**_SERIAL, "budget_us": (0, MAX_MICROSECONDS)},
        Answers: _SERIAL,
    }
)
"""Closed ranges of the integer fields of every struct of the protocol, columns excepted."""


def check(message: msgspec.Struct) -> None:
    """Refuse a message that breaks a rule.

    Raises:
        WireError: `bad_field`, naming the field (dotted, with its message), the value and the rule.
    """
    kind = type(message).__name__.lower()
    _check_ranges(message, kind)
    match message:
        case m.Hello():
            _check_hello(message)
        case m.Welcome():
            _check_welcome(message)
        case m.Refusal():
            _text(f"{kind}.code", message.code, MAX_NAME)
            for field in ("detail", "field", "ours", "theirs"):
                _text(f"{kind}.{field}", getattr(message, field), MAX_DETAIL)
        case m.Pulse():
            _text(f"{kind}.phase", message.phase, MAX_NAME)
        case m.Report():
            _check_report(message)
        case m.Release():
            _check_release(message)
        case m.Goodbye():
            _text(f"{kind}.reason", message.reason, MAX_DETAIL)
        case m.Failure():
            _text(f"{kind}.code", message.code, MAX_NAME)
            _text(f"{kind}.detail", message.detail, MAX_DETAIL)
        case Answers():
            _check_ranges(message.timings, f"{kind}.timings")
        case _:
            pass


def _check_ranges(struct: msgspec.Struct, where: str) -> None:
    for field, (low, high) in RANGES.get(type(struct), {}).items():
        value = getattr(struct, field)
        if value is not UNSET:
            _require(low <= value <= high, f"{where}.{field}", value, f"{low} to {high}")


def _check_hello(hello: m.Hello) -> None:
    lowest, highest = hello.minors
    _require(0 <= lowest <= highest <= MAX_ID, "hello.minors", hello.minors, "0 <= lowest <= highest")
    _text("hello.software", hello.software, MAX_NAME)
    _text("hello.verifier", hello.verifier, MAX_NAME)
    _name("hello.namespace", hello.namespace)
    _check_ranges(hello.target, "hello.target")
    _check_ranges(hello.draft, "hello.draft")
    taps = hello.target.taps
    # No taps is right for a draft that works from tokens alone.
    ascending = all(a < b for a, b in pairwise(taps))
    _require(ascending and min(taps, default=0) >= 0, "hello.target.taps", taps, "ascending, from 0")
    _require(max(taps, default=0) <= MAX_WIDTH, "hello.target.taps", taps, f"at most {MAX_WIDTH}")
    _name("hello.target.stream", hello.target.stream)
    for field in ("model_digest", "vocab_digest"):
        digest = getattr(hello.target, field)
        if digest is not None:
            known = _DIGEST.fullmatch(digest) is not None
            _require(known, f"hello.target.{field}", digest, "64 hexadecimal digits or nothing")
    _name("hello.draft.family", hello.draft.family)
    _name("hello.draft.layout", hello.draft.layout)
    _names("hello.row_formats", hello.row_formats, at_least=1)
    _names("hello.features", hello.features)


def _check_welcome(welcome: m.Welcome) -> None:
    _text("welcome.software", welcome.software, MAX_NAME)
    _name("welcome.row_format", welcome.row_format)
    _names("welcome.features", welcome.features)
    known = welcome.identity in IDENTITIES
    _require(known, "welcome.identity", welcome.identity, " or ".join(IDENTITIES))
    if isinstance(welcome.window, int):
        known = 1 <= welcome.window <= MAX_POSITION
        _require(known, "welcome.window", welcome.window, f"1 to {MAX_POSITION}")
    if isinstance(welcome.retain, str):
        known = welcome.retain in m.RETAIN
        _require(known, "welcome.retain", repr(welcome.retain[:MAX_NAME]), " or ".join(m.RETAIN))
    limits = welcome.limits
    _check_ranges(limits, "welcome.limits")
    enough = limits.bulk_credit >= limits.bulk_payload
    expected = f"at least one payload, {limits.bulk_payload}"
    _require(enough, "welcome.limits.bulk_credit", limits.bulk_credit, expected)
    expected = f"above one heartbeat, {welcome.heartbeat_ms}"
    _require(welcome.lease_ms > welcome.heartbeat_ms, "welcome.lease_ms", welcome.lease_ms, expected)


def _check_report(report: m.Report) -> None:
    _name("report.breaker", report.breaker)
    for name, value in report.counts.items():
        _name("report.counts", name)
        _require(0 <= value <= MAX_ID, f"report.counts.{name}", value, f"0 to {MAX_ID}")
    for name, times in report.stages.items():
        _name("report.stages", name)
        where = f"report.stages.{name}"
        given, buckets = len(times.counts), len(BOUNDS_US) + 1
        _require(given == buckets, f"{where}.counts", f"{given} values", f"{buckets} buckets")
        for value in times.counts:
            _require(0 <= value <= MAX_ID, f"{where}.counts", value, f"0 to {MAX_ID}")
        _check_ranges(times, where)
    given, positions = len(report.accepted), len(report.drafted)
    _require(given == positions, "report.accepted", f"{given} values", f"{positions}, one a position")
    for field, values in (("drafted", report.drafted), ("accepted", report.accepted)):
        for before, value in pairwise((MAX_ID, *values)):
            _require(0 <= value <= before, f"report.{field}", value, f"0 to {before}, no more than before it")
    for drafted, accepted in zip(report.drafted, report.accepted, strict=True):
        _require(accepted <= drafted, "report.accepted", accepted, f"at most {drafted}, those drafted")


def _check_release(release: m.Release) -> None:
    count = len(release.requests)
    _require(count > 0, "release.requests", "empty", "at least one request")
    given = len(release.generations)
    _require(given == count, "release.generations", f"{given} values", f"{count}, one for each request")
    for field, values in (("requests", release.requests), ("generations", release.generations)):
        for value in (min(values), max(values)):
            _require(0 <= value <= MAX_ID, f"release.{field}", value, f"0 to {MAX_ID}")


def _require(passed: bool, field: str, value: object, expected: str) -> None:
    if not passed:
        raise WireError(Code.BAD_FIELD, field, value, expected)


def _text(field: str, value: str, limit: int) -> None:
    """Text that ends up in logs: bounded, and without control characters."""
    passed = len(value) <= limit and value.isprintable()
    _require(passed, field, repr(value[:limit]), f"at most {limit} printable characters")


def _name(field: str, value: str) -> None:
    expected = f"1 to {MAX_NAME} letters, digits, '.', '_' or '-'"
    _require(_NAME.fullmatch(value) is not None, field, repr(value[: MAX_NAME + 1]), expected)


def _names(field: str, values: tuple[str, ...], at_least: int = 0) -> None:
    _require(len(values) >= at_least, field, values, f"at least {at_least} names")
    _require(len(set(values)) == len(values), field, values, "no name twice")
    for value in values:
        _name(field, value)
