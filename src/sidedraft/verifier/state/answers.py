"""What an answer changes: which one is applied, which one is dropped, and who has caught up."""

from __future__ import annotations

from sidedraft.verifier.state.guards import judge
from sidedraft.verifier.state.ladder import Ladder
from sidedraft.verifier.state.news import Rung
from sidedraft.verifier.state.outcome import Draft, NoDraft, Reason
from sidedraft.verifier.state.request import Phase
from sidedraft.verifier.state.step import Ask
from sidedraft.wire.advance import Answer
from sidedraft.wire.advance import Outcome as Remote
from sidedraft.wire.batch import AnswerBatch, Timings
from sidedraft.wire.errors import WireError


def take_answers(ladder: Ladder, now: float, batch: AnswerBatch, vocab_size: int) -> None:
    """Apply the answers of one message of the current session."""
    ladder.heard_at = now
    for answer in batch.answers:
        ask = _take(ladder, now, answer)
        if ask is not None:
            _take_draft(ladder, now, ask, answer, batch.timings, vocab_size)
    for error in batch.refused:
        _take_bad(ladder, now, error)


def _take(ladder: Ladder, now: float, answer: Answer) -> Ask | None:
    """What it says of the request's progress; returns the question it answers: same generation, same
    number, same base, and still waited for."""
    request = ladder.by_id.get(answer.request)
    if request is None or request.phase is Phase.CLOSED or answer.generation != request.generation:
        ladder.counters.stale_answers += 1
        return None
    if not request.answered < answer.number <= request.sent:
        ladder.counters.repeated_answers += 1
        return None
    if request.phase is Phase.RELEASED:
        request.answered = answer.number
        return None
    if answer.outcome is Remote.REFUSED:
        words = f"{answer.error}: {answer.detail}"
        ladder.counters.refused += 1
        ladder.news.add(Rung.REFUSED, f"the server refused an advance: {words}")
        ladder.refuse(now, request, NoDraft(Reason.REFUSED, words))
        return None
    base = request.take_answer(now, answer.number)
    if answer.committed != base:
        words = f"committed end {answer.committed}, ours {base}"
        ladder.counters.bad_replies += 1
        ladder.news.add(Rung.BAD_REPLY, words)
        ladder.refuse(now, request, NoDraft(Reason.BAD_REPLY, words))
        return None
    ladder.catch_up(now, request)
    ladder.reopening.discard(request.wire_id)
    probe = ladder.probe
    if probe is not None and probe.request is request and answer.number >= probe.number:
        # EXPIRED alone says that the work was not taken up in time.
        ladder.end_probe(now, passed=answer.outcome is not Remote.EXPIRED and now <= probe.deadline)
    ask = request.ask
    if ask is None or answer.number < ask.number:
        return None
    request.ask = None
    if answer.number > ask.number:
        return None  # its own answer was lost on the way; nobody waits: a later submission superseded it
    ladder.patience.observe(now - ask.asked_at)
    return ask if ask.waiting else None


def _take_draft(
    ladder: Ladder, now: float, ask: Ask, answer: Answer, timings: Timings, vocab_size: int
) -> None:
    outcome = judge(ask, answer, vocab_size)
    if isinstance(outcome, Draft):
        ask.request.refusals = None
        ladder.counters.drafted += 1
        ladder.counters.rows_known += outcome.rows_present
        ladder.counters.rows_missing += ask.end - outcome.context_start - outcome.rows_present
    elif outcome.reason is Reason.EXPIRED:
        ladder.counters.expired += 1
    elif outcome.reason is Reason.BAD_REPLY:
        ladder.counters.bad_replies += 1
        ladder.news.add(Rung.BAD_REPLY, outcome.detail)
    if ask.step is not None:
        ask.step.times.add_server(timings)
    ladder.resolve(now, ask, outcome)


def _take_bad(ladder: Ladder, now: float, error: WireError) -> None:
    """An answer the decoder refused: what it says of the committed end is not used either."""
    ladder.counters.bad_replies += 1
    ladder.news.add(Rung.BAD_REPLY, str(error))
    request = None if error.request is None else ladder.by_id.get(error.request)
    if request is None or not request.open or request.ask is None:
        return
    ask = request.ask
    if (ask.generation, ask.number) == (error.generation, error.number) and ask.waiting:
        request.fall_behind(now)
        ladder.resolve(now, ask, NoDraft(Reason.BAD_REPLY, error.detail))
