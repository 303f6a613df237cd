"""Valid messages of a small session, and hypothesis strategies for them."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st

from sidedraft.wire import messages as m
from sidedraft.wire.advance import MAX_CONTEXT_KEY, Advance, Answer, Opening, Outcome
from sidedraft.wire.agreement import Agreement
from sidedraft.wire.batch import AdvanceBatch, AnswerBatch, Timings
from sidedraft.wire.codec import Codec, End
from sidedraft.wire.errors import Code
from sidedraft.wire.figures import BOUNDS_US, COUNTS, STAGES
from sidedraft.wire.handshake import ServerFacts, negotiate
from sidedraft.wire.limits import MAX_BATCH, MAX_DEPTH, MAX_ID, MAX_MICROSECONDS, MAX_POSITION

VOCAB = 97
ROW_BYTES = 32
"""Two taps of eight values in bf16."""
LAST = 512
"""The greatest position of the session."""
DEPTH = 4
SESSION = 0x1234_5678_9ABC
EPOCH = 0x7FFF_FFFF_FFFF_FFFF

TARGET = m.TargetFacts(taps=(1, 3), hidden_size=8, vocab_size=VOCAB)
DRAFT = m.DraftFacts(family="dflash", layout="bonus", max_depth=DEPTH)
LIMITS = m.SessionLimits(
    control_payload=1 << 16,
    bulk_payload=1 << 18,
    bulk_credit=1 << 20,
    requests=64,
    batch=MAX_BATCH,
    context=2048,
)
HELLO = m.Hello(
    software="verifier 1.0",
    verifier="engine-0",
    target=TARGET,
    draft=DRAFT,
    row_formats=("bf16", "f32"),
    max_depth=8,
    max_position=LAST,
)
FACTS = ServerFacts(
    software="server 1.0",
    epoch=EPOCH,
    target=TARGET,
    draft=DRAFT,
    max_depth=DEPTH,
    limits=LIMITS,
    confidence=True,
)
REPORT = m.Report(
    session=SESSION,
    epoch=EPOCH,
    breaker="closed",
    requests=3,
    behind=1,
    deadline_us=40_000,
    counts={"late": 2, "drafted": 70},
    stages={"client_total": m.StageTimes(counts=(0, 0, 5) + (0,) * (len(BOUNDS_US) - 2), total_us=1_000)},
    drafted=(60, 60, 50, 50),
    accepted=(40, 20, 10, 0),
)


def facts(**changes: Any) -> ServerFacts:
    """The server's facts, some of them changed."""
    return dataclasses.replace(FACTS, **changes)


def agreement(hello: m.Hello = HELLO, facts: ServerFacts = FACTS) -> Agreement:
    """What these two agree on; fails the test when they do not."""
    found = negotiate(hello, facts, SESSION)
    assert isinstance(found, Agreement), found
    return found


def codecs(agreed: Agreement | None = None) -> tuple[Codec, Codec]:
    """The verifier's and the server's codec of one session."""
    agreed = agreement() if agreed is None else agreed
    return Codec(End.VERIFIER, agreed), Codec(End.SERVER, agreed)


def batch_of(*advances: Advance, **fields: Any) -> AdvanceBatch:
    return AdvanceBatch(SESSION, EPOCH, fields.pop("serial", 1), fields.pop("budget_us", 0), list(advances))


def answers_of(*answers: Answer, timings: Timings | None = None) -> AnswerBatch:
    return AnswerBatch(SESSION, EPOCH, 1, list(answers), timings or Timings())


def tokens_of(*ids: int) -> np.ndarray:
    return np.array(ids, dtype=np.int32)


ids = st.integers(0, MAX_ID)
tokens = st.integers(0, VOCAB - 1)
positions = st.integers(0, MAX_POSITION)
durations = st.integers(0, MAX_MICROSECONDS)
texts = st.text(st.characters(categories=("L", "N", "P")), max_size=40)
names = st.text("abzAZ09._-", min_size=1, max_size=12)


def token_arrays(count: int) -> st.SearchStrategy[np.ndarray]:
    return st.lists(tokens, min_size=count, max_size=count).map(lambda found: tokens_of(*found))


@st.composite
def advances(draw: st.DrawFn) -> Advance:
    """Any advance that the session allows."""
    number = draw(st.one_of(st.just(0), ids))
    first = draw(st.integers(0, 12 if number == 0 else LAST))
    count = draw(st.integers(0, min(6, LAST - first)))
    rows = draw(st.integers(0, count))
    opening = None
    if number == 0:
        opening = Opening(
            draw(token_arrays(first)),
            draw(st.binary(max_size=MAX_CONTEXT_KEY)),
            private=draw(st.booleans()),
            lookup=draw(st.booleans()),
        )
    data = draw(st.binary(min_size=rows * ROW_BYTES, max_size=rows * ROW_BYTES))
    return Advance(
        request=draw(ids),
        generation=draw(ids),
        number=number,
        first=first,
        tokens=draw(token_arrays(count)),
        next_token=draw(tokens),
        depth=draw(st.integers(0, DEPTH)),
        rows_at=first + draw(st.integers(0, count - rows)),
        rows=np.frombuffer(data, dtype=np.uint8).reshape(rows, ROW_BYTES) if rows else None,
        opening=opening,
    )


advance_batches = st.builds(
    AdvanceBatch,
    session=st.just(SESSION),
    epoch=st.just(EPOCH),
    serial=ids,
    budget_us=durations,
    advances=st.lists(advances(), min_size=1, max_size=5),
)


@st.composite
def answers(draw: st.DrawFn) -> Answer:
    """Any answer that the session allows."""
    outcome = draw(st.sampled_from(Outcome))
    count = draw(st.integers(1, DEPTH)) if outcome is Outcome.DRAFTED else 0
    confidence = None
    if draw(st.booleans()):
        values = draw(st.lists(st.floats(0, 1, width=32), min_size=count, max_size=count))
        confidence = np.array(values, dtype=np.float32)
    committed = draw(positions)
    start = draw(st.integers(0, committed))
    return Answer(
        request=draw(ids),
        generation=draw(ids),
        number=draw(ids),
        outcome=outcome,
        committed=committed,
        rows_present=draw(st.integers(0, committed - start)),
        context_start=start,
        tokens=draw(token_arrays(count)),
        confidence=confidence,
        error=draw(st.sampled_from(Code)).value if outcome is Outcome.REFUSED else "",
        detail=draw(texts),
    )


timings = st.builds(
    Timings,
    queue=durations,
    ingest=durations,
    propose=durations,
    server=durations,
    batch=st.integers(0, MAX_BATCH),
    slices=st.one_of(st.just(msgspec.UNSET), ids),
)
answer_batches = st.builds(
    AnswerBatch,
    session=st.just(SESSION),
    epoch=st.just(EPOCH),
    serial=ids,
    answers=st.lists(answers(), min_size=1, max_size=5),
    timings=timings,
)

digests = st.sampled_from((None, "0" * 64, "f" * 64))
targets = st.builds(
    m.TargetFacts,
    taps=st.sets(st.integers(0, 1000), max_size=8).map(lambda found: tuple(sorted(found))),
    stream=names,
    hidden_size=st.integers(1, 1 << 20),
    vocab_size=st.integers(1, MAX_POSITION),
    model_digest=digests,
    vocab_digest=digests,
)
drafts = st.builds(m.DraftFacts, family=names, layout=names, max_depth=st.integers(1, MAX_DEPTH))
hellos = st.builds(
    m.Hello,
    minors=st.tuples(st.integers(0, 9), st.integers(10, 19)),
    software=texts,
    verifier=texts,
    namespace=names,
    target=targets,
    draft=drafts,
    row_formats=st.lists(names, min_size=1, max_size=4, unique=True).map(tuple),
    max_depth=st.integers(1, MAX_DEPTH),
    max_position=st.integers(1, MAX_POSITION),
    features=st.lists(names, max_size=4, unique=True).map(tuple),
    strict_identity=st.booleans(),
)
welcomes = st.builds(
    m.Welcome,
    session=st.integers(1, MAX_ID),
    epoch=st.integers(1, MAX_ID),
    minor=st.integers(0, 99),
    software=texts,
    row_format=names,
    max_depth=st.integers(1, MAX_DEPTH),
    limits=st.just(LIMITS),
    features=st.lists(names, max_size=4, unique=True).map(tuple),
    identity=st.sampled_from(("full", "partial")),
    confidence=st.booleans(),
    heartbeat_ms=st.integers(1, 1000),
    lease_ms=st.integers(1001, 9999),
    window=st.sampled_from((msgspec.UNSET, None, 1, MAX_POSITION)),
    retain=st.sampled_from((msgspec.UNSET, *m.RETAIN)),
)
_here = {"session": st.just(SESSION), "epoch": st.just(EPOCH)}
goodbyes = st.builds(m.Goodbye, **_here, reason=texts)
releases = st.lists(st.tuples(ids, ids), min_size=1, max_size=5).map(
    lambda pairs: m.Release(
        session=SESSION,
        epoch=EPOCH,
        requests=tuple(request for request, _ in pairs),
        generations=tuple(generation for _, generation in pairs),
    )
)
stage_times = st.builds(
    m.StageTimes,
    counts=st.lists(ids, min_size=len(BOUNDS_US) + 1, max_size=len(BOUNDS_US) + 1).map(tuple),
    total_us=ids,
)


@st.composite
def reports(draw: st.DrawFn) -> m.Report:
    """Any report, with names that this version knows and others."""
    judged = draw(st.lists(st.tuples(ids, ids).map(sorted), max_size=DEPTH))
    return m.Report(
        session=SESSION,
        epoch=EPOCH,
        breaker=draw(names),
        requests=draw(ids),
        behind=draw(ids),
        deadline_us=draw(ids),
        counts=draw(st.dictionaries(st.one_of(st.sampled_from(list(COUNTS)), names), ids, max_size=8)),
        stages=draw(
            st.dictionaries(st.one_of(st.sampled_from(list(STAGES)), names), stage_times, max_size=3)
        ),
        drafted=tuple(sorted((high for _, high in judged), reverse=True)),
        accepted=tuple(sorted((low for low, _ in judged), reverse=True)),
    )


to_server = st.one_of(hellos, st.builds(m.Heartbeat, **_here, serial=ids), reports(), releases, goodbyes)
to_verifier = st.one_of(
    welcomes,
    st.builds(m.Refusal, code=texts, detail=texts, field=texts, ours=texts, theirs=texts),
    st.builds(m.Pulse, **_here, serial=ids, progress=ids, queued=ids, phase=texts),
    st.builds(m.Credit, **_here, bytes=st.integers(1, MAX_ID)),
    st.builds(m.Failure, **_here, code=texts, detail=texts, fatal=st.booleans()),
    goodbyes,
)


def plain(value: Any) -> Any:
    """A batch, advance or answer as nested tuples that compare by value, views and dtypes included."""
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    if isinstance(value, list):
        return tuple(plain(item) for item in value)
    if isinstance(value, AdvanceBatch | AnswerBatch | Advance | Answer | Opening):
        return tuple(plain(getattr(value, name)) for name in value.__slots__)
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.astuple(value)
    return value
