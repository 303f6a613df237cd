"""Each rung of the ladder, from the engine's side: what a step gives, how long it waits, what comes next."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from sidedraft.settings import VerifierSettings
from sidedraft.transport.base import Lane
from sidedraft.transport.fake import DROP, DUPLICATE, Direction, Faults, delayed, overtaken
from sidedraft.verifier import submitting
from sidedraft.verifier.state.breaker import BreakerState, Cause
from sidedraft.verifier.state.outcome import Draft, NoDraft, Outcome, Reason
from sidedraft.wire.batch import AdvanceBatch
from support.ladder_world import IMPATIENT, MAX_DEPTH, SETTINGS, STEP_TIME, Request, World
from support.model_server import LIMITS, Peer

UP, DOWN = Direction.UP, Direction.DOWN
IMPATIENT_DEADLINE = 0.02 + 1e-9


def world(settings: VerifierSettings = IMPATIENT, requests: int = 1, **options: float) -> World:
    """Connected, with requests that have had a draft already."""
    found = World(settings=settings, **options)
    found.connect()
    for _ in range(requests):
        found.start()
    assert all(isinstance(outcome, Draft) for outcome in found.take(found.submit()).values())
    return found


def script(found: World, direction: Direction, *fates: object, lane: Lane = Lane.CONTROL) -> None:
    found.channel.links[lane, direction].script.extend(fates)


def reason(outcome: Outcome) -> Reason:
    assert isinstance(outcome, NoDraft), outcome
    return outcome.reason


def only(results: dict[int, Outcome]) -> Outcome:
    (outcome,) = results.values()
    return outcome


def assert_honest(found: World) -> None:
    """What must hold after any scenario without corruption."""
    assert found.stale == 0
    assert found.overrun <= 1e-9
    assert found.waits_while_open == 0
    assert found.pressed == 0
    assert found.server.confused == []


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5])
def test_a_late_answer_leaves_the_request_behind_and_drafting_resumes_in_the_same_generation(
    steps: int,
) -> None:
    w = world()
    (request,) = w.requests.values()
    script(w, DOWN, delayed(steps * STEP_TIME))
    assert reason(only(w.step())) is Reason.LATE
    behind = 0
    while w.state(request).behind:
        outcome = only(w.step())
        behind += reason(outcome) is Reason.BEHIND if isinstance(outcome, NoDraft) else 0
    assert w.until_drafted(request) <= 2
    # The first steps of the delay pass while the late step itself waits.
    assert behind >= steps - 1
    assert w.counters.resumed >= 1
    assert w.counters.lost == 0
    assert request.generations == {0}
    assert w.counters.drafted == sum(isinstance(outcome, Draft) for outcome in w.outcomes)
    assert_honest(w)


def test_while_behind_every_advance_still_reaches_the_server() -> None:
    w = world()
    (request,) = w.requests.values()
    script(w, DOWN, delayed(3 * STEP_TIME))
    for _ in range(6):
        w.step()
    w.sleep(STEP_TIME)
    (peer,) = w.server.peers.values()
    (held,) = peer.requests.values()
    assert held.tokens == request.tokens
    assert held.rows == set(range(len(request.tokens)))
    assert_honest(w)


def test_only_the_late_request_of_a_batch_goes_without() -> None:
    w = world(requests=3)
    late, *others = w.requests.values()
    w.sleep(STEP_TIME)
    late.grow()
    script(w, DOWN, overtaken(0.1))
    assert reason(only(w.take(w.submit([late])))) is Reason.LATE
    assert all(isinstance(outcome, Draft) for outcome in w.step(others).values())
    assert w.counters.lost == 0
    w.sleep(0.2)
    assert all(isinstance(outcome, Draft) for outcome in w.step().values())
    assert_honest(w)


def test_a_lost_answer_is_made_good_by_the_next_one() -> None:
    w = world()
    (request,) = w.requests.values()
    script(w, DOWN, DROP)
    assert reason(only(w.step())) is Reason.LATE
    assert w.until_drafted(request) <= 2
    assert request.generations == {0}
    assert_honest(w)


def test_a_lost_advance_is_lost_after_two_seconds_and_opened_again_by_prefix() -> None:
    w = world()
    (request,) = w.requests.values()
    script(w, UP, DROP)
    begun = w.clock()
    assert reason(only(w.step())) is Reason.LATE
    w.until_drafted(request)
    assert 2.0 <= w.clock() - begun <= 3.0
    assert request.generations == {0, 1}
    assert w.counters.reopened == 1
    (peer,) = w.server.peers.values()
    (held,) = peer.requests.values()
    assert held.tokens == request.tokens
    assert_honest(w)


@pytest.mark.parametrize("busy", [1, 2])
def test_a_server_is_not_lost_while_a_step_still_waits_for_it(busy: int) -> None:
    """Its every answer takes longer than `late_lost`, but not longer than the deadline."""
    w = world(VerifierSettings(deadline=8.0, handshake_timeout=1.0, limits=SETTINGS.limits), requests=2)
    requests = list(w.requests.values())
    for _ in range(3):
        script(w, DOWN, delayed(SETTINGS.late_lost + 1.0))
        outcomes = w.step(requests[:busy])
        assert all(isinstance(outcome, Draft) for outcome in outcomes.values())
    assert w.counters.lost == 0
    assert_honest(w)


def test_work_nobody_asked_about_is_given_up_when_the_whole_session_is_silent() -> None:
    w = world(requests=2)
    first, second = w.requests.values()
    w.sleep(STEP_TIME)
    first.grow()
    script(w, UP, DROP)
    w.submit([first], depth=0)
    w.sleep(0.001)
    for _ in range(100):  # 3 s in which the other request is answered: the first may wait its turn
        w.step([second])
    assert w.counters.lost == 0
    w.sleep(2.5)
    assert w.counters.lost == 1
    w.until_drafted(first)
    assert first.generations == {0, 1}
    assert second.generations == {0}
    assert_honest(w)


@pytest.mark.parametrize("direction", Direction)
def test_duplicates_and_overtaken_messages_change_nothing(direction: Direction) -> None:
    w = world()
    (request,) = w.requests.values()
    script(w, direction, DUPLICATE, overtaken(STEP_TIME), DUPLICATE, overtaken(2 * STEP_TIME))
    for _ in range(8):
        w.step()
    w.until_drafted(request)
    assert request.generations == {0}
    assert_honest(w)


@pytest.mark.parametrize("at", range(8))
@pytest.mark.parametrize("moment", ["before submit", "while waiting"])
def test_a_server_restarted_at_any_step_is_met_again_in_a_new_generation(at: int, moment: str) -> None:
    w = world(requests=3)
    for _ in range(at):
        w.step()
    if moment == "before submit":
        w.server.kill()
        results = w.step()
        assert {reason(outcome) for outcome in results.values()} == {Reason.OPEN}
    else:
        w.sleep(STEP_TIME)
        for request in w.requests.values():
            request.grow()
        pending = w.submit()
        w.turn()
        w.server.kill()
        begun = w.clock()
        results = w.take(pending)
        assert {reason(outcome) for outcome in results.values()} == {Reason.LOST}
        assert w.clock() == begun, "nobody waits for a server that is known to be gone"
    begun = w.clock()
    w.step()
    assert w.clock() - begun == pytest.approx(STEP_TIME), "while it is away a step costs nothing"
    w.server.start()
    back = w.clock()
    for request in w.requests.values():
        w.until_drafted(request)
    assert w.clock() - back <= 2.0
    assert w.counters.epoch_changes == 1
    assert all(request.generations == {0, 1} for request in w.requests.values())
    assert_honest(w)


@pytest.mark.parametrize("lane", [Lane.CONTROL, Lane.BULK, None])
def test_a_broken_connection_costs_a_generation_and_no_wait(lane: Lane | None) -> None:
    w = world()
    (request,) = w.requests.values()
    w.network.cut(w.channel, lane)
    assert reason(only(w.step())) in (Reason.OPEN, Reason.LOST)
    w.until_drafted(request)
    assert request.generations == {0, 1}
    assert w.counters.epoch_changes == 0
    assert_honest(w)


def test_at_most_four_lost_requests_are_opened_at_once() -> None:
    w = world(requests=12)
    w.server.kill()
    w.step()
    w.server.start()
    w.connect()
    w.server.service = 0.1
    seen = set()
    for _ in range(100):
        w.step()
        seen.add(len(w.session.ladder.reopening))
    assert max(seen) == SETTINGS.reopen_in_flight
    w.server.service = 0.004
    for request in w.requests.values():
        w.until_drafted(request)
    assert w.counters.reopened == 12
    assert_honest(w)


def test_requests_that_ran_before_there_was_a_server_are_opened_a_few_at_a_time_too() -> None:
    w = World(settings=IMPATIENT, service=0.1)
    w.server.kill()
    for _ in range(12):
        w.start()
    w.take(w.submit())
    w.server.start()
    w.connect()
    assert {reason(outcome) for outcome in w.step().values()} == {Reason.LOST}
    assert len(w.session.ladder.held) == SETTINGS.reopen_in_flight
    w.server.service = 0.004
    for request in w.requests.values():
        w.until_drafted(request)
        assert request.generations == {0}
    assert w.counters.reopened == 0
    assert_honest(w)


@pytest.mark.parametrize("settings", [IMPATIENT, SETTINGS])
def test_nobody_waits_for_a_request_whose_new_opening_is_not_answered(settings: VerifierSettings) -> None:
    w = world(settings)
    (request,) = w.requests.values()
    w.network.cut(w.channel)
    w.sleep(0.2)
    w.connect()
    w.server.service = 0.5
    outcomes = []
    for _ in range(4):
        begun = w.clock()
        outcomes.append(reason(only(w.step())))
        assert w.clock() - begun == pytest.approx(STEP_TIME)
    assert outcomes == [Reason.LOST, *[Reason.BEHIND] * 3]
    assert w.session.ladder.breaker.closed
    w.server.service = 0.0
    w.until_drafted(request)
    assert_honest(w)


def test_the_breaker_opens_after_two_late_steps_and_then_no_step_waits() -> None:
    w = world(requests=2)
    w.server.mute = True
    assert {reason(outcome) for outcome in w.step().values()} == {Reason.LATE}
    assert w.session.ladder.breaker.closed
    w.start()  # not behind: it can be asked
    w.step()
    assert w.session.ladder.breaker.state is BreakerState.OPEN
    assert w.session.ladder.breaker.cause is Cause.LATE
    for _ in range(5):
        begun = w.clock()
        assert {reason(outcome) for outcome in w.step().values()} == {Reason.OPEN}
        assert w.clock() - begun == pytest.approx(STEP_TIME)
    assert_honest(w)


def test_a_step_in_time_between_late_ones_keeps_the_breaker_closed() -> None:
    w = world(requests=1)
    slow = w.start()
    for _ in range(6):
        w.sleep(STEP_TIME)
        for request in w.requests.values():
            request.grow()
        # One step is in time, the next is not.
        w.take(w.submit([request for request in w.requests.values() if request is not slow]))
        script(w, DOWN, delayed(0.05))
        w.take(w.submit([slow]))
        w.sleep(0.2)
    assert w.counters.late > 0
    assert w.counters.breaker_opened == 0
    assert_honest(w)


def test_a_proposal_carries_what_is_left_of_its_deadline() -> None:
    w = world()
    (request,) = w.requests.values()
    request.grow()
    budgets = []

    class Ready:
        def query(self) -> bool:
            w.clock.advance_to(w.clock() + 0.005)
            return True

    def noting(peer: Peer, batch: AdvanceBatch, credit: int) -> None:
        budgets.append(batch.budget_us)

    w.server._work = noting
    submitting.submit(w.shared, w.filler, [w.submission(request)], Ready())
    w.sleep(0.01)
    assert budgets == [pytest.approx(15_000, abs=1)]


@pytest.mark.parametrize("later", [None, 10.0])
def test_the_result_is_there_at_the_deadline_even_if_the_io_thread_hangs(later: float | None) -> None:
    w = world()
    (request,) = w.requests.values()
    request.grow()
    pending = w.submit()

    def nothing_happens(done: Callable[[], bool], until: float) -> bool:
        w.clock.advance_to(until)
        return done()

    w.shared.wait = nothing_happens
    assert reason(only(pending.result(later))) is Reason.LATE
    assert w.clock() == pending.deadline


@pytest.mark.parametrize("depth", [0, MAX_DEPTH])
def test_submit_waits_for_no_send_buffer_while_the_breaker_is_open(depth: int) -> None:
    settings = msgspec.structs.replace(IMPATIENT, staging_segments=2)
    w = world(settings)
    (request,) = w.requests.values()
    w.server.mute = True
    while w.session.ladder.breaker.closed:
        w.start()
        w.step()
    for _ in range(4):
        begun = w.clock()
        w.take(w.submit([w.start(LIMITS.context - 10)], depth))
        assert w.clock() == begun
    assert w.counters.rows_dropped > 0, "the buffers were all in use"
    w.server.mute = False
    w.until_drafted(request)
    assert_honest(w)


@pytest.mark.parametrize("depth", [0, MAX_DEPTH])
def test_after_lateness_a_probe_that_nobody_waits_for_closes_the_breaker(depth: int) -> None:
    """Also when the engine runs at depth 0 while the breaker is open."""
    w = world()
    (request,) = w.requests.values()
    w.server.mute = True
    while w.session.ladder.breaker.closed:
        w.start()
        w.step()
    w.server.mute = False
    for _ in range(100):
        if w.session.ladder.breaker.closed:
            break
        w.step(depth=depth)
    assert w.session.ladder.breaker.closed
    assert w.counters.probes >= 1
    w.until_drafted(request)
    assert request.generations == {0}, "lateness costs no generation"
    assert_honest(w)


def test_a_probe_that_is_late_opens_the_breaker_again_and_the_next_waits_longer() -> None:
    w = world()
    w.server.service = 0.1
    begun = w.clock()
    while w.clock() - begun < 10:
        w.sleep(0.3)  # long enough for the server to catch up
        w.step()
    assert w.counters.breaker_opened == 1
    # Waits of 50, 100, 200, 400, 800 ms and then 1 s, each shortened by jitter to a half at most.
    assert 8 <= w.counters.probes <= 22
    assert w.longest <= IMPATIENT_DEADLINE
    assert_honest(w)


def test_an_engine_faster_than_a_round_trip_resumes_as_well() -> None:
    """Behind, it is never in step when it submits; what is under way is young enough, though."""
    w = world(settings=SETTINGS)
    (request,) = w.requests.values()
    w.server.service = 0.1
    script(w, DOWN, delayed(0.6))
    assert reason(only(w.step())) is Reason.LATE
    w.until_drafted(request, steps=40)
    assert request.generations == {0}
    assert_honest(w)


def test_a_message_that_cannot_be_sent_opens_the_breaker_until_the_queue_drains() -> None:
    w = world()
    (request,) = w.requests.values()
    w.server.mute = True
    while not w.counters.refused_sends:
        w.step(depth=0)
    assert w.session.ladder.breaker.cause is Cause.REFUSED_SEND
    assert not w.state(request).open, "lost at once, not when its next advance cannot be sent either"
    assert reason(only(w.step())) is Reason.OPEN
    w.server.mute = False
    w.until_drafted(request)
    assert request.generations == {0, 1}
    assert w.counters.session_losses == 0
    assert_honest(w)


def test_bulk_messages_that_vanish_cost_a_session_and_their_credit_comes_back_with_the_next() -> None:
    w = world()
    link = w.channel.links[Lane.BULK, UP]
    link.faults = Faults(drop=1.0)
    request = w.start(LIMITS.context - 10)
    w.take(w.submit())
    w.sleep(2.5)
    assert w.counters.session_losses == 1
    link.faults = Faults()
    w.connect()
    request.rewind(200)
    w.take(w.submit())
    w.until_drafted(request)
    assert w.counters.session_losses == 1
    assert_honest(w)


def test_a_server_silent_for_a_lease_is_given_up() -> None:
    w = world()
    (request,) = w.requests.values()
    w.server.mute = True
    w.step()
    w.sleep(5.5)
    assert w.session.agreement is None
    w.server.mute = False
    w.until_drafted(request)
    assert w.counters.sessions >= 2
    assert w.counters.bad_messages == 0, "what it still says of the old session is stale, and no fault"
    assert_honest(w)


def test_steps_before_any_server_get_no_draft_at_once_and_the_first_after_it_do() -> None:
    w = World()
    w.server.kill()
    request = w.start()
    begun = w.clock()
    assert reason(only(w.take(w.submit()))) is Reason.OPEN
    assert w.clock() == begun
    for _ in range(3):
        w.step()
    w.server.start()
    w.until_drafted(request)
    (peer,) = w.server.peers.values()
    (held,) = peer.requests.values()
    assert held.tokens == request.tokens, "opened by the record that we kept meanwhile"
    assert_honest(w)


def test_a_refused_handshake_is_told_in_the_servers_words_and_tried_again() -> None:
    w = World()
    w.server.refuse = "moving out"
    w.start()
    w.sleep(3.0)
    assert "moving out" in w.session.refusal
    failures = w.counters.handshake_failures
    assert 3 <= failures <= 12, "with waits that double up to a second"
    w.server.refuse = ""
    w.sleep(1.1)
    assert w.session.agreement is not None
    assert w.session.refusal == ""


def test_a_verifier_with_other_taps_gets_no_session() -> None:
    w = World(taps=(1,))
    w.sleep(0.5)
    assert w.session.agreement is None
    assert "taps" in w.session.refusal


def test_a_request_beyond_the_drafts_context_goes_on_without() -> None:
    w = world()
    request = w.start(prompt=LIMITS.context - 2)
    results = w.take(w.submit())
    draft = results[request.name]
    assert isinstance(draft, Draft)
    assert len(draft.tokens) == 2, "positions up to the context's end"
    for _ in range(3):
        results = w.step()
    assert reason(results[request.name]) is Reason.BEYOND
    others = [outcome for name, outcome in results.items() if name != request.name]
    assert all(isinstance(outcome, Draft) for outcome in others)
    request.rewind(200)
    assert isinstance(w.take(w.submit())[request.name], NoDraft | Draft)
    w.until_drafted(request)
    assert_honest(w)


def test_a_rewind_is_stated_by_a_smaller_first() -> None:
    w = world(requests=2)
    first, second = w.requests.values()
    w.step()
    first.rewind(3)
    second.rewind(1000)
    assert all(isinstance(outcome, Draft) for outcome in w.take(w.submit()).values())
    assert first.generations == second.generations == {0}
    assert_honest(w)


def test_asking_again_without_new_tokens() -> None:
    w = world()
    assert isinstance(only(w.take(w.submit())), Draft)
    assert_honest(w)


def test_a_draft_is_revoked_when_its_request_moves_on_before_it_is_taken() -> None:
    w = world()
    (request,) = w.requests.values()
    request.grow()
    waiting = w.submit()
    request.grow()
    w.submit()
    assert reason(only(w.take(waiting))) is Reason.SUPERSEDED
    request.grow()
    there = w.submit()
    w.sleep(0.019)
    assert there.settled
    request.grow()
    w.submit()
    assert reason(only(w.take(there))) is Reason.SUPERSEDED
    assert_honest(w)


def test_a_released_request_is_forgotten_on_both_sides() -> None:
    w = world(requests=2)
    gone, kept = w.requests.values()
    w.sleep(STEP_TIME)
    gone.grow()
    pending = w.submit([gone])
    w.release(gone)
    assert reason(only(w.take(pending))) is Reason.RELEASED
    w.sleep(0.5)
    (peer,) = w.server.peers.values()
    assert len(peer.requests) == 1
    assert len(w.session.ladder.by_id) == 1
    w.until_drafted(kept)
    assert_honest(w)


def test_a_release_does_not_overtake_what_went_by_the_bulk_lane() -> None:
    w = world()
    request = w.start(prompt=200)
    script(w, UP, delayed(0.1), lane=Lane.BULK)
    w.submit([request])
    w.release(request)
    w.sleep(3.0)
    (peer,) = w.server.peers.values()
    assert len(peer.requests) == 1, "the late message opened it for nobody"
    assert_honest(w)


def test_what_still_waits_for_credit_is_dropped_with_its_request() -> None:
    w = World(settings=SETTINGS)
    w.connect()
    request = w.start(LIMITS.context - 10)
    w.server.mute = True
    w.submit()
    w.turn()
    sent = w.counters.bytes_bulk
    assert 0 < sent <= LIMITS.bulk_credit
    w.release(request)
    w.server.mute = False
    w.sleep(3.0)
    assert w.counters.bytes_bulk == sent
    assert_honest(w)


def test_a_name_can_be_used_again_after_its_release() -> None:
    w = world()
    (old,) = w.requests.values()
    w.release(old)
    again = Request(old.name, old.random)
    again.tokens, again.anchor = [5, 6, 7], 8
    w.requests[old.name] = again
    assert isinstance(only(w.take(w.submit())), Draft)
    assert_honest(w)
