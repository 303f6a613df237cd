"""`/v1/status` as `sidedraft status` reads it: what it shows, and nothing of what else is there."""

from __future__ import annotations

import http.client

import msgspec

from sidedraft.cli.errors import CommandError

TIMEOUT = 5.0
"""Seconds that a server may take to answer."""

UNREACHABLE = 1
"""Exit status when there is no server to ask, or it is not ready."""


class Acceptance(msgspec.Struct, frozen=True):
    length: float | None
    drafted: list[int]
    accepted: list[int]


class Stage(msgspec.Struct, frozen=True):
    """Milliseconds; None while there was no step."""

    mean: float | None
    p50: float | None
    p99: float | None


class Report(msgspec.Struct, frozen=True):
    """A verifier's word on itself."""

    breaker: str
    requests: int
    behind: int
    deadline_ms: float
    counts: dict[str, int]
    stages_ms: dict[str, Stage]
    acceptance: Acceptance


class Session(msgspec.Struct, frozen=True):
    verifier: str
    requests: int
    max_depth: int
    report: Report | None = None


class Counts(msgspec.Struct, frozen=True):
    io: dict[str, int]
    engine: dict[str, int]


class Limits(msgspec.Struct, frozen=True):
    max_requests: int


class Status(msgspec.Struct, frozen=True):
    """Fields with a default are there once the model is loaded."""

    software: str
    phase: str
    uptime_seconds: float
    ready: bool
    reason: str
    counts: Counts
    sessions: list[Session]
    address: str = ""
    family: str = ""
    device: str = ""
    dtype: str = ""
    limits: Limits | None = None


def fetch(address: str) -> bytes:
    """The JSON of the server at HOST:PORT.

    Raises `CommandError`: nobody answers, or something else than a draft server does.
    """
    host, _, port = address.rpartition(":")
    connection = http.client.HTTPConnection(host.strip("[]"), int(port), timeout=TIMEOUT)
    try:
        connection.request("GET", "/v1/status")
        reply = connection.getresponse()
        body = reply.read()
    except (OSError, http.client.HTTPException) as error:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise CommandError(f"no draft server answers at http://{address}: {why}", UNREACHABLE) from error
    finally:
        connection.close()
    if reply.status != http.client.OK:
        raise _stranger(address, f"it answers {reply.status} to /v1/status")
    return body


def read(address: str, body: bytes) -> Status:
    """What was fetched, checked. Raises `CommandError`: it is not what a draft server says."""
    try:
        return msgspec.json.decode(body, type=Status)
    except msgspec.MsgspecError as error:
        raise _stranger(address, str(error)) from error


def _stranger(address: str, why: str) -> CommandError:
    return CommandError(f"http://{address} is no draft server of this version: {why}", UNREACHABLE)
