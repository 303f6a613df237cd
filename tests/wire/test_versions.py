"""What may be said after an agreement on a minor and features: by the real table, and by a made-up one."""

from __future__ import annotations

import msgspec
import pytest

from sidedraft.wire import messages as m
from sidedraft.wire.advance import Answer, Outcome
from sidedraft.wire.batch import Timings
from sidedraft.wire.errors import Code, WireError
from sidedraft.wire.versions import (
    ADDED,
    Since,
    as_agreed,
    check_agreed,
    common_features,
    common_minor,
    understood,
)
from support import protocol as p


class Beat(m.Message, frozen=True, tag="beat", kw_only=True):
    """A heartbeat as a later version might have it."""

    serial: int
    load: int | msgspec.UnsetType = msgspec.UNSET
    ring: str | msgspec.UnsetType = msgspec.UNSET


class Novelty(m.Message, frozen=True, tag="novelty", kw_only=True):
    """A message that an earlier version does not have."""


LATER = {Beat: {"load": Since(minor=2), "ring": Since(feature="shm")}, Novelty: {"": Since(minor=3)}}


@pytest.mark.parametrize(
    ("message", "minor", "features", "refused"),
    [
        (Beat(serial=1), 0, (), None),
        (Beat(serial=1, load=3), 2, (), None),
        (Beat(serial=1, load=3), 5, (), None),
        (Beat(serial=1, load=3), 1, ("shm",), "load is present, expected absent: minor 2 was not agreed"),
        (Beat(serial=1, ring="x"), 0, ("shm",), None),
        (Beat(serial=1, ring="x"), 9, (), "ring is present, expected absent: feature shm was not agreed"),
        (Novelty(), 3, (), None),
        (Novelty(), 2, (), "novelty is present, expected absent: minor 3 was not agreed"),
        (p.HELLO, 0, (), None),
    ],
)
def test_only_what_was_agreed_may_be_said(message, minor, features, refused):
    whole = type(message) is Novelty
    assert understood(type(message), minor, features, LATER) is (refused is None or not whole)
    if refused is None:
        check_agreed(message, minor, features, LATER)
        return
    with pytest.raises(WireError) as caught:
        check_agreed(message, minor, features, LATER)
    assert (caught.value.code, caught.value.detail) == (Code.MALFORMED, refused)


def test_a_field_that_is_not_set_leaves_no_trace_in_the_bytes():
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(Beat(serial=1))) == {"type": "beat", "serial": 1}


def test_everything_added_belongs_to_a_minor_that_is_spoken():
    assert (m.MINOR_LOWEST, m.MINOR_HIGHEST) == (0, 2)
    sinces = [since for fields in ADDED.values() for since in fields.values()]
    assert {since.minor for since in sinces if not since.feature} <= {1, 2}


@pytest.mark.parametrize(("ours", "theirs"), [((0, 0), (0, 1)), ((0, 1), (0, 0))])
def test_a_report_is_refused_at_both_ends_when_one_of_them_is_of_minor_0(ours, theirs):
    hello = msgspec.structs.replace(p.HELLO, minors=theirs)
    agreed = p.agreement(hello, p.facts(minors=ours))
    assert agreed.minor == 0
    verifier, server = p.codecs(agreed)
    frames = p.codecs()[0].encode(p.REPORT)
    for use in (lambda: server.decode(frames), lambda: verifier.encode(p.REPORT)):
        with pytest.raises(WireError, match="report is present, expected absent: minor 1"):
            use()


def test_a_peer_of_today_takes_reports_and_hears_everything_of_minor_0():
    verifier, server = p.codecs()
    beat = m.Heartbeat(session=p.SESSION, epoch=p.EPOCH, serial=1)
    for message in (p.REPORT, beat):
        assert server.decode(verifier.encode(message)) == message


def test_slices_are_counted_in_sessions_of_minor_2_only():
    timings = Timings(queue=3, slices=1)
    answer = Answer(1, 0, 0, Outcome.INGESTED)
    older = p.agreement(msgspec.structs.replace(p.HELLO, minors=(0, 1)))
    assert older.minor == 1
    verifier, server = p.codecs(older)
    frames = p.codecs()[1].encode(p.answers_of(answer, timings=timings))
    assert p.codecs()[0].decode(frames).timings == timings
    with pytest.raises(WireError, match="slices is present, expected absent: minor 2 was not agreed"):
        verifier.decode(frames)
    with pytest.raises(WireError, match="slices is present, expected absent: minor 2 was not agreed"):
        server.encode(p.answers_of(answer, timings=timings))
    said = as_agreed(timings, older.minor, older.features)
    assert said == Timings(queue=3)
    assert verifier.decode(server.encode(p.answers_of(answer, timings=said))).timings == said
    assert as_agreed(timings, 2, ()) == timings


def test_both_ends_check_what_they_send_and_what_they_receive(monkeypatch):
    """With the heartbeat itself made an addition, the codec refuses it both ways."""
    beat = m.Heartbeat(session=p.SESSION, epoch=p.EPOCH, serial=1)
    verifier, server = p.codecs()
    frames = verifier.encode(beat)
    monkeypatch.setattr("sidedraft.wire.codec.check_agreed", _with_heartbeat_added)
    for use in (lambda: server.decode(frames), lambda: verifier.encode(beat)):
        with pytest.raises(WireError, match="heartbeat is present, expected absent: minor 3"):
            use()


def _with_heartbeat_added(message, minor, features):
    check_agreed(message, minor, features, {m.Heartbeat: {"": Since(minor=3)}})


@pytest.mark.parametrize(
    ("ours", "theirs", "common"),
    [
        ((0, 0), (0, 0), 0),
        ((0, 4), (2, 9), 4),
        ((2, 9), (0, 4), 4),
        ((0, 1), (2, 3), None),
        ((3, 3), (3, 3), 3),
    ],
)
def test_the_common_minor_is_the_highest_in_both_ranges(ours, theirs, common):
    assert common_minor(ours, theirs) == common


def test_a_feature_that_one_side_does_not_know_is_ignored():
    assert common_features(("b", "a"), ("a", "c", "b")) == ("b", "a")
    assert common_features((), ("a",)) == ()
