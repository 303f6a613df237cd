"""Ranges and rules of messages without columns, at both ends."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sidedraft.wire import messages as m
from sidedraft.wire.batch import Timings
from sidedraft.wire.codec import Codec, End
from sidedraft.wire.errors import Code, WireError
from sidedraft.wire.handshake import welcome
from sidedraft.wire.validate import check
from support import protocol as p

HERE = {"session": p.SESSION, "epoch": p.EPOCH}
WELCOME = welcome(p.agreement(), "server 1.0")
TIMED = msgspec.structs.replace  # shorter below
VALID: list[m.Message] = [
    p.HELLO,
    WELCOME,
    m.Refusal(code="mismatch", detail="words"),
    m.Heartbeat(**HERE, serial=1),
    p.REPORT,
    m.Pulse(**HERE, serial=1, progress=2, queued=3, phase="ready"),
    m.Credit(**HERE, bytes=4),
    m.Release(**HERE, requests=(1, 2), generations=(0, 3)),
    m.Goodbye(**HERE, reason="done"),
    m.Failure(**HERE, code="internal", detail="words"),
]
BY_NAME = {type(message).__name__.lower(): message for message in VALID}
U63 = 2**63 - 1
U31 = 2**31 - 1

RANGES: list[tuple[str, int, int]] = [
    ("hello.protocol", 1, U63),
    ("hello.max_depth", 1, 256),
    ("hello.max_position", 1, U31),
    ("hello.target.hidden_size", 1, 2**20),
    ("hello.target.vocab_size", 1, U31),
    ("hello.draft.max_depth", 1, 256),
    ("welcome.session", 1, U63),
    ("welcome.epoch", 1, U63),
    ("welcome.minor", 0, U63),
    ("welcome.max_depth", 1, 256),
    ("welcome.heartbeat_ms", 1, 4999),
    ("welcome.lease_ms", 201, 2_147_483),
    ("welcome.limits.control_payload", 1, 64 << 20),
    ("welcome.limits.bulk_payload", 1, 1 << 20),
    ("welcome.limits.bulk_credit", 1 << 18, U63),
    ("welcome.limits.requests", 1, U63),
    ("welcome.limits.batch", 1, 4096),
    ("welcome.limits.context", 1, U31),
    ("heartbeat.session", 1, U63),
    ("heartbeat.epoch", 1, U63),
    ("heartbeat.serial", 0, U63),
    ("report.session", 1, U63),
    ("report.epoch", 1, U63),
    ("report.requests", 0, U63),
    ("report.behind", 0, U63),
    ("report.deadline_us", 0, U63),
    ("pulse.session", 1, U63),
    ("pulse.epoch", 1, U63),
    ("pulse.serial", 0, U63),
    ("pulse.progress", 0, U63),
    ("pulse.queued", 0, U63),
    ("credit.session", 1, U63),
    ("credit.epoch", 1, U63),
    ("credit.bytes", 1, U63),
    ("release.session", 1, U63),
    ("release.epoch", 1, U63),
    ("goodbye.session", 1, U63),
    ("goodbye.epoch", 1, U63),
    ("failure.session", 0, U63),
    ("failure.epoch", 1, U63),
]


def with_value(path: str, value: Any) -> m.Message:
    """The valid message of the path's first name with the field at the rest of it replaced."""
    name, *fields = path.split(".")

    def replace(struct: Any, rest: list[str]) -> Any:
        inner = value if len(rest) == 1 else replace(getattr(struct, rest[0]), rest[1:])
        return msgspec.structs.replace(struct, **{rest[0]: inner})

    found: m.Message = replace(BY_NAME[name], fields)
    return found


def ends(message: m.Message) -> tuple[Codec, Codec]:
    """Sender and receiver, neither of them in a session that the message would have to belong to."""
    to_server = type(message) in (m.Hello, m.Heartbeat, m.Report, m.Release)
    sender = End.VERIFIER if to_server else End.SERVER
    return Codec(sender), Codec(sender.peer)


def refused_everywhere(message: m.Message, path: str) -> WireError:
    """Refused before it is sent, and refused when a peer sends it all the same."""
    sender, receiver = ends(message)
    with pytest.raises(WireError) as sent:
        sender.encode(message)
    with pytest.raises(WireError) as received:
        receiver.decode([msgspec.msgpack.encode(message)])
    assert str(received.value) == str(sent.value)
    assert (sent.value.code, sent.value.field) == (Code.BAD_FIELD, path)
    return sent.value


@pytest.mark.parametrize("message", VALID, ids=lambda message: type(message).__name__)
def test_the_samples_are_valid(message):
    sender, receiver = ends(message)
    assert receiver.decode(sender.encode(message)) == message


@pytest.mark.parametrize(("path", "low", "high"), RANGES, ids=[path for path, _, _ in RANGES])
def test_a_number_has_a_closed_range(path, low, high):
    for value in (low, high):
        check(with_value(path, value))
    for value in (low - 1, high + 1):
        error = refused_everywhere(with_value(path, value), path if "lease" in path else _first(path, value))
        assert str(value) in error.value or path.endswith(("bulk_payload", "heartbeat_ms"))


def _first(path: str, value: int) -> str:
    """The field an error names: a relation to another field is told by the one that depends."""
    if path == "welcome.limits.bulk_payload" and value > 1:
        return "welcome.limits.bulk_credit"
    if path == "welcome.heartbeat_ms" and value > 1:
        return "welcome.lease_ms"
    return path


def test_every_number_of_every_message_has_a_range():
    """A field added without a bound fails here."""
    covered = {path for path, _, _ in RANGES}

    def numbers(struct: Any, prefix: str) -> list[str]:
        found = []
        for field in struct.__struct_fields__:
            value = getattr(struct, field)
            if isinstance(value, msgspec.Struct):
                found += numbers(value, f"{prefix}.{field}")
            elif isinstance(value, int) and not isinstance(value, bool):
                found.append(f"{prefix}.{field}")
        return found

    assert {path for name, message in BY_NAME.items() for path in numbers(message, name)} == covered


TEXTS = [
    ("hello.software", 64),
    ("hello.verifier", 64),
    ("welcome.software", 64),
    ("refusal.code", 64),
    ("refusal.detail", 512),
    ("refusal.field", 512),
    ("refusal.ours", 512),
    ("refusal.theirs", 512),
    ("pulse.phase", 64),
    ("goodbye.reason", 512),
    ("failure.code", 64),
    ("failure.detail", 512),
]


@pytest.mark.parametrize(("path", "most"), TEXTS, ids=[path for path, _ in TEXTS])
def test_a_text_is_bounded_and_cannot_confuse_a_log(path, most):
    check(with_value(path, "x" * most))
    for text in ("x" * (most + 1), "two\nlines", "\x1b[2J", "\x00"):
        refused_everywhere(with_value(path, text), path)


NAMES = [
    "hello.namespace",
    "hello.target.stream",
    "hello.draft.family",
    "hello.draft.layout",
    "welcome.row_format",
    "report.breaker",
]


@pytest.mark.parametrize("path", NAMES)
def test_a_name_is_a_word(path):
    check(with_value(path, "a-b.C_" + "x" * 58))
    for name in ("", "x" * 65, "a b", "a/b", "ä", "a\n"):
        refused_everywhere(with_value(path, name), path)


@pytest.mark.parametrize("path", ["hello.row_formats", "hello.features", "welcome.features"])
def test_a_list_of_names_is_bounded_and_repeats_nothing(path):
    check(with_value(path, tuple(f"n{i}" for i in range(64))))
    refused_everywhere(with_value(path, ("a", "b", "a")), path)
    refused_everywhere(with_value(path, ("a b",)), path)
    long = with_value(path, tuple(f"n{i}" for i in range(65)))
    with pytest.raises(WireError, match="length <= 64"):
        ends(long)[1].decode([msgspec.msgpack.encode(long)])


OTHER: list[tuple[str, Any]] = [
    ("hello.minors", (1, 0)),
    ("hello.minors", (-1, 0)),
    ("hello.minors", (0, 2**63)),
    ("hello.row_formats", ()),
    ("hello.target.taps", (3, 1)),
    ("hello.target.taps", (1, 1)),
    ("hello.target.taps", (-1, 1)),
    ("hello.target.taps", (1, 2**20 + 1)),
    ("hello.target.model_digest", "0" * 63),
    ("hello.target.model_digest", "G" * 64),
    ("hello.target.vocab_digest", ""),
    ("welcome.identity", "perhaps"),
    ("welcome.limits.bulk_credit", (1 << 18) - 1),
    ("welcome.lease_ms", 200),
    ("release.requests", ()),
    ("release.generations", (0,)),
    ("release.requests", (1, -1)),
    ("release.requests", (1, 2**63)),
    ("release.generations", (0, -1)),
    ("release.generations", (2**63, 0)),
    ("report.accepted", (40, 20, 10)),
    ("report.accepted", (40, 20, 30, 0)),
    ("report.accepted", (61, 20, 10, 0)),
    ("report.accepted", (40, 20, 10, -1)),
    ("report.drafted", (2**63, 60, 50, 50)),
    ("report.counts", {"two words": 1}),
]


@pytest.mark.parametrize(("path", "value"), OTHER)
def test_fields_that_depend_on_each_other(path, value):
    refused_everywhere(with_value(path, value), path)


FULL = p.REPORT.stages["client_total"].counts


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"counts": {"late": -1}}, "report.counts.late"),
        ({"counts": {"late": 2**63}}, "report.counts.late"),
        ({"stages": {"two words": p.REPORT.stages["client_total"]}}, "report.stages"),
        ({"stages": {"x": m.StageTimes(counts=FULL[1:], total_us=0)}}, "report.stages.x.counts"),
        ({"stages": {"x": m.StageTimes(counts=(*FULL[1:], -1), total_us=0)}}, "report.stages.x.counts"),
        ({"stages": {"x": m.StageTimes(counts=FULL, total_us=-1)}}, "report.stages.x.total_us"),
    ],
)
def test_every_number_of_a_report_has_a_range(change, where):
    refused_everywhere(msgspec.structs.replace(p.REPORT, **change), where)


@pytest.mark.parametrize("field", ["counts", "stages"])
def test_the_names_of_a_report_are_bounded_while_they_are_read(field):
    values = {"counts": 1, "stages": p.REPORT.stages["client_total"]}
    for names in ([f"n{i}" for i in range(65)], ["x" * 65]):
        report = msgspec.structs.replace(p.REPORT, **{field: dict.fromkeys(names, values[field])})
        with pytest.raises(WireError, match=r"malformed: report\.\w+.* length <= 64"):
            ends(report)[1].decode([msgspec.msgpack.encode(report)])


@pytest.mark.parametrize(
    ("path", "most"),
    [
        ("hello.target.taps", 64),
        ("release.requests", 4096),
        ("report.drafted", 256),
        ("report.accepted", 256),
    ],
)
def test_a_list_of_numbers_is_bounded_while_it_is_read(path, most):
    long = with_value(path, tuple(range(most + 1)))
    with pytest.raises(WireError, match=f"malformed: {path} is .*length <= {most}"):
        ends(long)[1].decode([msgspec.msgpack.encode(long)])


@pytest.mark.parametrize("field", ["serial", "budget_us"])
def test_the_scalars_of_a_batch_have_ranges(field):
    verifier, _ = p.codecs()
    batch = p.batch_of(p.Advance(1, 0, 3, 10, p.tokens_of(), 6), **{field: -1})
    with pytest.raises(WireError) as caught:
        verifier.encode(batch)
    assert caught.value.field == f"advances.{field}"


def test_timings_default_to_nothing_measured():
    assert msgspec.structs.astuple(Timings()) == (0, 0, 0, 0, 0, msgspec.UNSET)
