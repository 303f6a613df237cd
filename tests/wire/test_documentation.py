"""docs/protocol.md names everything that can travel, and states the real bounds."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sidedraft.wire import limits
from sidedraft.wire import messages as m
from sidedraft.wire.advance import MAX_CONTEXT_KEY, Outcome
from sidedraft.wire.batch import Advances, Answers, OpeningHeader, Timings
from sidedraft.wire.errors import Code
from sidedraft.wire.figures import BOUNDS_US, STAGES
from sidedraft.wire.headers import UNDERSTOOD
from sidedraft.wire.rows import FORMATS
from support import protocol as p

TEXT = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
PROSE = re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)
NAMED = {word for code in re.findall(r"`([^`]+)`", PROSE) for word in re.findall(r"\w+", code)}
STRUCTS = [
    *{kind for kinds in UNDERSTOOD.values() for kind in kinds},
    m.TargetFacts,
    m.DraftFacts,
    m.SessionLimits,
    m.StageTimes,
    Timings,
    OpeningHeader,
    Advances,
    Answers,
]


@pytest.mark.parametrize("struct", sorted(set(STRUCTS), key=lambda struct: struct.__name__))
def test_every_message_and_field_is_named(struct):
    tag = struct.__struct_config__.tag
    assert tag is None or tag in NAMED
    assert set(struct.__struct_fields__) <= NAMED


def test_every_code_outcome_and_format_is_named():
    assert {code.value for code in Code} <= NAMED
    assert set(FORMATS) <= NAMED
    for outcome in Outcome:
        assert f"| {outcome.value} | `{outcome.name}` |" in TEXT


def test_every_stage_and_bucket_of_a_report_is_named():
    assert set(STAGES) <= NAMED
    assert ", ".join(map(str, BOUNDS_US)) in TEXT


def test_the_bounds_are_the_real_ones():
    for words in (
        f"header {limits.MAX_HEADER} bytes",
        f"payload {limits.MAX_PAYLOAD} bytes",
        f"{limits.MAX_BATCH} advances or answers",
        f"{limits.MAX_TAPS} taps",
        f"{limits.MAX_LIST} names in a list",
        f"{limits.MAX_NAME} characters of a name",
        f"{limits.MAX_DETAIL} of an explanation",
        f"depth {limits.MAX_DEPTH}",
        f"padding to {limits.ALIGNMENT} bytes",
        f"at most {MAX_CONTEXT_KEY} bytes",
        f"major version: {m.PROTOCOL}",
    ):
        assert words in TEXT, words
    assert p.MAX_ID == 2**63 - 1
    assert p.MAX_POSITION == 2**31 - 1
