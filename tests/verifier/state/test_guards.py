"""Replies that must not be applied, said directly to the state machine."""

from __future__ import annotations

import subprocess
import sys
from random import Random

import msgspec
import numpy as np
import pytest

from sidedraft.settings import VerifierSettings
from sidedraft.verifier.state.breaker import Cause
from sidedraft.verifier.state.cutting import Parcel
from sidedraft.verifier.state.entry import Entry, SubmissionError
from sidedraft.verifier.state.outcome import Draft, NoDraft, Outcome, Reason
from sidedraft.verifier.state.session import Session
from sidedraft.verifier.state.step import Step
from sidedraft.wire import messages as m
from sidedraft.wire.advance import Answer
from sidedraft.wire.advance import Outcome as Remote
from sidedraft.wire.batch import AnswerBatch
from sidedraft.wire.errors import Code, WireError
from support.ladder_world import facts
from support.model_server import LIMITS, VOCAB


class Talk:
    """A session that was welcomed, with one request that was asked about at position 3."""

    def __init__(self) -> None:
        self.session = Session(facts().hello(VerifierSettings()), VerifierSettings(), Random(0))
        self.session.connected(0.0, bulk=False)
        self.session.tick(0.0)
        self.welcome()
        self.step = self.ask(0, [1, 2, 3])

    def welcome(self, session: int = 11, epoch: int = 22) -> None:
        self.session.receive(
            0.0,
            m.Welcome(
                session=session,
                epoch=epoch,
                minor=0,
                software="test",
                row_format="f32",
                max_depth=4,
                limits=LIMITS,
                identity="partial",
                heartbeat_ms=200,
                lease_ms=5000,
            ),
        )

    def ask(self, first: int, tokens: list[int], depth: int = 4) -> Step:
        entry = Entry("r", first, np.array(tokens, np.int32), 5, depth, first, 0)
        return self.session.submit(0.0, [entry], 0.0)[0]

    def answer(
        self, tokens: object = (1, 2, 3, 4), *, now: float = 0.01, **changes: object
    ) -> Outcome | None:
        fields = {
            "request": 1,
            "generation": 0,
            "number": 0,
            "outcome": Remote.DRAFTED,
            "committed": 3,
            "tokens": np.asarray(tokens, np.int64),
        }
        self.say(AnswerBatch(11, 22, 1, [Answer(**(fields | changes))]), now)  # type: ignore[arg-type]
        return self.step.outcomes[0]

    def say(self, message: m.Message | AnswerBatch, now: float = 0.01) -> None:
        self.session.receive(now, message)

    @property
    def counters(self):
        return self.session.counters


def reason(outcome: Outcome | None) -> Reason | None:
    return outcome.reason if isinstance(outcome, NoDraft) else None


def test_the_right_answer_is_applied_once() -> None:
    talk = Talk()
    outcome = talk.answer(context_start=1, rows_present=2, confidence=np.array([0.5] * 4, np.float32))
    assert isinstance(outcome, Draft)
    assert outcome.tokens.tolist() == [1, 2, 3, 4]
    assert outcome.tokens.dtype == np.int32
    assert (outcome.context_start, outcome.rows_present) == (1, 2)
    talk.answer([9, 9, 9, 9])
    assert talk.counters.repeated_answers == 1
    assert talk.step.outcomes[0] is outcome


@pytest.mark.parametrize("bad", [-1, VOCAB, VOCAB + 1, 2**31 - 1, 2**31])
def test_ids_outside_the_vocabulary_are_refused(bad: int) -> None:
    talk = Talk()
    assert reason(talk.answer([1, bad, 2, 3])) is Reason.BAD_REPLY
    assert talk.counters.bad_replies == 1


@pytest.mark.parametrize("tokens", [[], [1, 2, 3, 4, 5], [[1, 2], [3, 4]]])
def test_other_shapes_than_asked_are_refused(tokens: list[object]) -> None:
    assert reason(Talk().answer(tokens)) is Reason.BAD_REPLY


@pytest.mark.parametrize("confidence", [[0.5] * 3, [0.5, float("nan"), 0.5, 0.5]])
def test_confidences_must_fit_and_be_finite(confidence: list[float]) -> None:
    answer = Talk().answer(confidence=np.array(confidence, np.float32))
    assert reason(answer) is Reason.BAD_REPLY


def test_fewer_tokens_than_asked_are_a_draft() -> None:
    assert isinstance(Talk().answer([7]), Draft)


def test_the_same_token_again_and_again_is_normal_text() -> None:
    assert isinstance(Talk().answer([0, 0, 0, 0]), Draft)


@pytest.mark.parametrize("committed", [0, 2, 4, 400])
def test_an_answer_from_another_base_loses_the_request(committed: int) -> None:
    talk = Talk()
    assert reason(talk.answer(committed=committed)) is Reason.BAD_REPLY
    assert talk.counters.lost == 1
    assert not talk.session.ladder.requests["r"].open


@pytest.mark.parametrize(
    ("changes", "counter"),
    [
        ({"generation": 1}, "stale_answers"),
        ({"request": 2}, "stale_answers"),
        ({"number": 1}, "repeated_answers"),
        ({"number": 10**9}, "repeated_answers"),
    ],
)
def test_an_answer_to_something_else_is_dropped(changes: dict[str, int], counter: str) -> None:
    talk = Talk()
    assert talk.answer(**changes) is None
    assert getattr(talk.counters, counter) == 1
    assert isinstance(talk.answer(), Draft), "the right one still counts"


@pytest.mark.parametrize(("session", "epoch"), [(12, 22), (11, 23), (0, 0)])
def test_messages_of_another_session_or_epoch_are_dropped(session: int, epoch: int) -> None:
    talk = Talk()
    talk.say(AnswerBatch(session, epoch, 1, [Answer(1, 0, 0, Remote.REFUSED, error="gap")]))
    talk.say(m.Goodbye(session=session, epoch=epoch))
    talk.say(m.Credit(session=session, epoch=epoch, bytes=5))
    assert talk.counters.stale_messages == 3
    assert isinstance(talk.answer(), Draft)


def test_an_answer_in_the_next_generation_is_for_that_one_only() -> None:
    talk = Talk()
    talk.say(AnswerBatch(11, 22, 1, [Answer(1, 0, 0, Remote.REFUSED, error="gap", detail="tokens missing")]))
    assert reason(talk.step.outcomes[0]) is Reason.REFUSED
    later = 1.0
    entry = Entry("r", 3, np.array([5], np.int32), 6, 4, 3, 0)
    step, (parcel,) = talk.session.submit(later, [entry], later)
    (piece,) = parcel.pieces
    assert (piece.advance.generation, piece.advance.number) == (1, 0)
    assert piece.advance.opening is not None
    assert piece.advance.opening.prefix.tolist() == [1, 2, 3]
    assert reason(step.outcomes[0]) is Reason.LOST, "nobody waits for an uncertain request"
    talk.answer(now=later)
    assert talk.counters.stale_answers == 1


def test_a_refused_request_is_not_opened_again_at_once() -> None:
    talk = Talk()
    for attempt in range(6):
        number = AnswerBatch(11, 22, 1, [Answer(1, attempt, 0, Remote.REFUSED, error="capacity")])
        talk.say(number, now=float(attempt))
        request = talk.session.ladder.requests["r"]
        assert not request.open
        full = min(1.0, 0.05 * 2**attempt)
        assert full / 2 <= request.retry_at - attempt <= full
        entry = Entry("r", 3, np.zeros(0, np.int32), 5, 4, 3, 0)
        step, made = talk.session.submit(float(attempt), [entry], 0.0)
        assert (made, reason(step.outcomes[0])) == ([], Reason.REFUSED)
        talk.session.submit(attempt + 1.0, [entry], 0.0)


@pytest.mark.parametrize(
    ("remote", "expected"),
    [
        (Remote.EXPIRED, Reason.EXPIRED),
        (Remote.SUPERSEDED, Reason.SUPERSEDED),
        (Remote.NO_DRAFT, Reason.NO_DRAFT),
    ],
)
def test_an_answer_without_draft_says_why(remote: Remote, expected: Reason) -> None:
    talk = Talk()
    assert reason(talk.answer([], outcome=remote)) is expected
    assert not talk.session.ladder.requests["r"].behind, "its rows are in"


def test_steps_of_expired_budgets_open_the_breaker() -> None:
    talk = Talk()
    talk.answer([], outcome=Remote.EXPIRED)
    assert talk.session.ladder.breaker.closed
    talk.step = talk.ask(3, [])
    talk.answer([], outcome=Remote.EXPIRED, number=1)
    assert not talk.session.ladder.breaker.closed


def test_nobody_goes_on_waiting_when_the_breaker_opens() -> None:
    talk = Talk()
    talk.session.refused(0.01, m.Heartbeat(session=11, epoch=22, serial=1))
    assert reason(talk.step.outcomes[0]) is Reason.OPEN
    assert talk.step.settled
    assert talk.session.ladder.requests["r"].open, "its own advance was sent"


@pytest.mark.parametrize(("after", "closed"), [(0.4, True), (0.6, False)])
def test_a_probe_counts_only_when_it_is_answered_within_its_budget(after: float, closed: bool) -> None:
    talk = Talk()
    talk.answer()
    talk.session.ladder.trip(0.0, Cause.LATE, "test")
    entry = Entry("r", 3, np.zeros(0, np.int32), 5, 0, 3, 0)
    step, (parcel,) = talk.session.submit(1.0, [entry], 1.0)
    assert step.settled
    assert parcel.deadline == 1.5
    assert parcel.pieces[0].advance.depth == 1
    talk.answer([3], number=1, now=1.0 + after)
    assert talk.session.ladder.breaker.closed is closed


def test_a_late_answer_is_no_draft_but_a_sample_of_latency() -> None:
    """Else a server that has become slower than the deadline could never move it."""
    talk = Talk()
    talk.session.tick(0.5)
    assert reason(talk.answer(now=0.7)) is Reason.LATE
    assert talk.session.ladder.patience.median == pytest.approx(0.7)


def test_an_answer_that_stands_for_a_lost_one_is_no_sample_of_latency() -> None:
    talk = Talk()
    talk.session.ladder.expire(0.5, talk.step)
    entry = Entry("r", 3, np.zeros(0, np.int32), 5, 0, 3, 0)
    talk.session.submit(0.6, [entry], 0.6)
    talk.answer([], outcome=Remote.INGESTED, number=1, now=0.7)
    assert talk.session.ladder.patience.median is None
    assert not talk.session.ladder.requests["r"].behind


def test_only_a_heartbeat_sent_after_a_refused_message_shows_that_messages_pass_again() -> None:
    talk = Talk()
    session = talk.session

    def beat(now: float) -> int:
        session.tick(now)
        while not isinstance(item := session.outbox.next(now), m.Heartbeat):
            assert item is not None
        session.outbox.sent(now, item)
        return item.serial

    before = beat(0.2)
    session.refused(0.3, m.Heartbeat(session=11, epoch=22, serial=before))
    pulse = m.Pulse(session=11, epoch=22, serial=before, progress=0, queued=0, phase="ready")
    talk.say(pulse, 0.31)
    assert session.ladder.blocked
    assert session.ladder.breaker.cause is Cause.REFUSED_SEND
    talk.say(msgspec.structs.replace(pulse, serial=beat(0.41)), 0.42)
    assert not session.ladder.blocked
    assert session.ladder.breaker.closed


def test_buffers_under_way_are_not_used_again_when_the_session_ends() -> None:
    talk = Talk()
    talk.session.connected(0.0, bulk=True)
    entry = Entry("long", 0, np.zeros(300, np.int32), 5, 0, 0, 300)
    _, parcels = talk.session.submit(0.1, [entry], 0.1)
    outbox = talk.session.outbox
    for index, parcel in enumerate(parcels):
        parcel.buffer = index
        outbox.dispatch(0.1, parcel)
    sent = []
    while (item := outbox.next(0.1)) is not None:
        outbox.sent(0.1, item)
        if isinstance(item, Parcel):
            sent.append(item.buffer)
    assert 0 < len(sent) < len(parcels)
    talk.session.disconnected(0.2, bulk=False, reason="test")
    freed, abandoned = outbox.take_buffers()
    assert abandoned == sent
    assert sorted(freed) == [index for index in range(len(parcels)) if index not in sent]


def test_an_answer_the_decoder_refused_ends_the_question_and_not_the_request() -> None:
    talk = Talk()
    error = WireError(Code.BAD_TOKEN, "tokens", 99, "0 to 96", request=1, generation=0, number=0)
    batch = AnswerBatch(11, 22, 1, [])
    batch.refused.append(error)
    talk.say(batch)
    assert reason(talk.step.outcomes[0]) is Reason.BAD_REPLY
    assert talk.session.ladder.requests["r"].open
    assert talk.session.ladder.requests["r"].behind


def test_a_second_welcome_replaces_the_session_and_a_repeated_one_does_not() -> None:
    talk = Talk()
    talk.welcome()
    assert talk.counters.session_losses == 0
    talk.welcome(session=33)
    assert talk.counters.session_losses == 1
    assert reason(talk.step.outcomes[0]) is Reason.LOST
    talk.welcome()
    assert talk.session.agreement is not None
    assert talk.session.agreement.session == 33


def test_a_server_that_does_not_know_us_is_greeted_again() -> None:
    talk = Talk()
    talk.say(m.Failure(session=0, epoch=22, code=Code.UNKNOWN_SESSION, detail="say hello", fatal=True))
    assert talk.session.agreement is None
    talk.session.tick(1.0)
    hello = [talk.session.outbox.next(1.0) for _ in range(2)]
    assert [type(item) for item in hello] == [m.Hello, type(None)]


def test_a_full_session_opens_no_more_requests() -> None:
    talk = Talk()
    many = [Entry(i, 0, np.zeros(0, np.int32), 5, 4, 0, 0) for i in range(LIMITS.requests + 5)]
    step, _ = talk.session.submit(0.1, many, 0.1)
    assert [reason(outcome) for outcome in step.outcomes].count(Reason.FULL) == 6
    talk.session.release(0.2, [many[0].key])
    again = Entry(many[-1].key, 0, np.zeros(0, np.int32), 5, 4, 0, 0)
    assert reason(talk.session.submit(0.3, [again], 0.3)[0].outcomes[0]) is Reason.FULL
    talk.session.ladder.take_released(10.0, 64)
    step, (parcel,) = talk.session.submit(10.0, [again], 10.0)
    assert parcel.pieces[0].advance.opening is not None
    assert reason(step.outcomes[0]) is Reason.LOST, "it missed its beginning: taken up by its prefix"


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        (Entry("r", 4, np.zeros(0, np.int32), 5, 0, 4, 0), "first"),
        (Entry("new", 4, np.zeros(0, np.int32), 5, 0, 4, 0), "prefix"),
    ],
)
def test_a_submission_with_tokens_missing_raises_and_changes_nothing(entry: Entry, field: str) -> None:
    talk = Talk()
    good = Entry("other", 0, np.array([1], np.int32), 5, 4, 0, 0)
    with pytest.raises(SubmissionError, match=field):
        talk.session.submit(0.0, [good, entry], 0.0)
    assert set(talk.session.ladder.requests) == {"r"}
    assert talk.counters.steps == 1


def test_the_same_request_twice_in_a_step_raises() -> None:
    talk = Talk()
    entry = Entry("r", 3, np.zeros(0, np.int32), 5, 0, 3, 0)
    with pytest.raises(SubmissionError, match="twice"):
        talk.session.submit(0.0, [entry, entry], 0.0)


def test_the_state_machine_imports_neither_torch_nor_zmq() -> None:
    code = (
        "import sys, pkgutil, importlib, sidedraft.verifier.state as s\n"
        "[importlib.import_module(s.__name__ + '.' + m.name) for m in pkgutil.iter_modules(s.__path__)]\n"
        "assert not {'torch', 'zmq'} & set(sys.modules), 'imported'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
