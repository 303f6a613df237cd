"""`Drafter` with its own thread over real sockets. Waits are bounded; none of them decides a result."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from sidedraft.settings import VerifierSettings
from sidedraft.transport.address import AddressError
from sidedraft.transport.base import Channel, TransportError
from sidedraft.transport.zmq import ZmqChannel, ZmqListener
from sidedraft.verifier.drafter import Drafter
from sidedraft.verifier.state.breaker import BreakerState
from sidedraft.verifier.submission import Draft, NoDraft, Reason, Submission, SubmissionError
from sidedraft.wire.handshake import random_id
from support.ladder_world import facts
from support.model_server import MAX_DEPTH, ModelServer, draft_of, rows_of

PATIENT = VerifierSettings(deadline=20.0, handshake_timeout=5.0)
"""A busy test machine must not make an answer late."""

BOUND = 20.0


class Server:
    """A model server with a thread of its own."""

    def __init__(self, address: str) -> None:
        self.model = ModelServer(
            lambda: ZmqListener(address), time.monotonic, service=0.0, epoch=random_id() // 2**20
        )
        self.turns = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self.model.turn(0.01)
            self.turns += 1
        self.model.kill()

    def mute(self) -> None:
        """Read nothing from now on."""
        self.model.mute = True
        seen = self.turns
        eventually(lambda: self.turns > seen + 1)

    def close(self) -> None:
        self._stop.set()
        self._thread.join(BOUND)
        assert not self._thread.is_alive()


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"ipc://{tmp_path}/draft.sock"


@pytest.fixture
def server(address: str) -> Iterator[Server]:
    found = Server(address)
    yield found
    found.close()


def make(address: str, factory: Callable[[], Channel] | None = None) -> Drafter:
    return Drafter(address, facts(), PATIENT, channel_factory=factory)


@pytest.fixture
def drafter(address: str, server: Server) -> Iterator[Drafter]:
    with make(address) as found:
        assert found.wait_connected(BOUND)
        yield found


def eventually(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < until, "did not happen"
        time.sleep(0.002)


def submission(tokens: list[int], first: int = 0, anchor: int = 9, name: object = "a") -> Submission:
    return Submission(name, first, tokens, anchor, MAX_DEPTH, rows_of(first, tokens))  # type: ignore[arg-type]


def drafted(drafter: Drafter, one: Submission) -> Draft:
    outcome = drafter.submit([one]).result()[one.request]
    assert isinstance(outcome, Draft), outcome
    return outcome


def test_drafts_come_back_for_every_request_and_step(drafter: Drafter, server: Server) -> None:
    known = {"a": [1, 2, 3], "b": list(range(60))}
    results = drafter.submit([submission(tokens, name=name) for name, tokens in known.items()]).result()
    for name, tokens in known.items():
        outcome = results[name]
        assert isinstance(outcome, Draft)
        assert outcome.tokens.tolist() == draft_of(tokens, 9, MAX_DEPTH)
    outcome = drafted(drafter, submission([4, 5], first=3))
    assert outcome.tokens.tolist() == draft_of([1, 2, 3, 4, 5], 9, MAX_DEPTH)
    assert server.model.confused == []


def test_a_long_prompt_goes_by_the_bulk_connection(drafter: Drafter, server: Server) -> None:
    tokens = [n % 97 for n in range(390)]
    assert drafted(drafter, submission(tokens)).tokens.tolist() == draft_of(tokens, 9, MAX_DEPTH)
    assert drafter.status().counters["bytes_bulk"] > 0
    assert server.model.rows == 390
    assert server.model.confused == []


def test_write_into_fills_drafts_fillers_and_the_mask(drafter: Drafter) -> None:
    ones = [submission([1, 2], name="a"), submission([3], name="b"), submission([4], name="c", anchor=7)]
    ones[1].depth = 2
    ones[2].depth = 0
    tokens = torch.full((3, 3), -1, dtype=torch.int64)
    valid = torch.ones((3, 3), dtype=torch.bool)
    drafter.submit(ones).write_into(tokens, valid)
    assert tokens[0].tolist() == draft_of([1, 2], 9, 3)
    assert tokens[1].tolist() == [*draft_of([3], 9, 2), 9]
    assert tokens[2].tolist() == [7, 7, 7]
    assert valid.tolist() == [[True] * 3, [True, True, False], [False] * 3]


@pytest.mark.parametrize(
    ("tokens", "valid", "named"),
    [
        (torch.zeros(1, 4), torch.zeros(1, 4, dtype=torch.bool), "tokens"),
        (torch.zeros(2, 4, dtype=torch.int64), torch.zeros(2, 4, dtype=torch.bool), "tokens"),
        (torch.zeros(1, 4, dtype=torch.int64), torch.zeros(1, 4), "valid"),
        (torch.zeros(1, 4, dtype=torch.int64), torch.zeros(1, 3, dtype=torch.bool), "valid"),
    ],
)
def test_write_into_refuses_other_tensors(
    drafter: Drafter, tokens: torch.Tensor, valid: torch.Tensor, named: str
) -> None:
    pending = drafter.submit([submission([1])])
    with pytest.raises(ValueError, match=f"^{named}: "):
        pending.write_into(tokens, valid)


def test_times_are_told_by_stage(drafter: Drafter) -> None:
    pending = drafter.submit([submission([1, 2])])
    pending.result()
    times = pending.times
    assert times["client_total"] >= times["rpc_roundtrip"] > 0
    assert times["request_plan"] > 0
    assert times["context_d2h"] > 0
    assert times["serialize"] > 0


def test_the_status_shows_session_breaker_and_counters(drafter: Drafter) -> None:
    drafted(drafter, submission([1]))
    eventually(lambda: drafter.status().phase == "ready")
    status = drafter.status()
    assert status.connected
    assert drafter.connected
    assert drafter.asking
    assert drafter.depth == MAX_DEPTH
    assert (status.breaker, status.cause) == (BreakerState.CLOSED, "")
    assert status.agreement is not None
    assert status.agreement.row_format.name == "f32"
    assert status.requests == 1
    assert status.counters["drafted"] == 1
    assert status.progress is not None


def test_an_earlier_deadline_than_the_steps_own_ends_the_wait(drafter: Drafter, server: Server) -> None:
    server.mute()
    pending = drafter.submit([submission([1])])
    outcome = pending.result(deadline=drafter.clock())["a"]
    assert isinstance(outcome, NoDraft)
    assert outcome.reason is Reason.LATE
    server.model.mute = False


def test_drafting_survives_a_restart_of_the_server(address: str) -> None:
    server = Server(address)
    with make(address) as drafter:
        tokens = [1, 2, 3]
        assert drafter.wait_connected(BOUND)
        drafted(drafter, submission(tokens))
        server.close()
        eventually(lambda: not drafter.status().connected)
        outcome = drafter.submit([submission([4], first=3)]).result()["a"]
        assert isinstance(outcome, NoDraft)
        assert outcome.reason is Reason.OPEN
        again = Server(address)
        try:
            assert drafter.wait_connected(BOUND)
            tokens += [4]
            found: list[object] = []

            def resumes() -> bool:
                tokens.append(5)
                found.append(drafter.submit([submission([5], first=len(tokens) - 1)]).result()["a"])
                return isinstance(found[-1], Draft)

            eventually(resumes)
            assert found[-1].tokens.tolist() == draft_of(tokens, 9, MAX_DEPTH)  # type: ignore[attr-defined]
            assert drafter.status().counters["sessions"] == 2
            assert drafter.status().counters["epoch_changes"] == 1
            assert drafter.status().counters["reopened"] == 1
        finally:
            again.close()


def test_close_ends_the_thread_and_everybodys_wait(address: str, server: Server) -> None:
    drafter = make(address)
    assert drafter.wait_connected(BOUND)
    server.mute()
    pending = drafter.submit([submission([1])])
    closer = threading.Timer(0.05, drafter.close)
    closer.start()
    outcome = pending.result()["a"]
    closer.join()
    assert isinstance(outcome, NoDraft)
    assert outcome.reason is Reason.CLOSED
    later = drafter.submit([submission([2], first=1)]).result()["a"]
    assert isinstance(later, NoDraft)
    assert later.reason is Reason.CLOSED
    assert not any(thread.name == "sidedraft-verifier-io" for thread in threading.enumerate())
    drafter.release(["a"])
    drafter.close()


def test_without_a_server_nothing_waits_and_close_is_prompt(address: str) -> None:
    with make(address) as drafter:
        assert not drafter.asking
        assert not drafter.connected
        assert drafter.depth == 0
        outcome = drafter.submit([submission([1])]).result()["a"]
        assert isinstance(outcome, NoDraft)
        assert outcome.reason is Reason.OPEN
        assert not drafter.wait_connected(0.01)


def test_a_bad_address_raises_where_it_was_given() -> None:
    with pytest.raises(AddressError, match="ipc://"):
        Drafter("http://x", facts())


def test_a_callers_mistake_raises(drafter: Drafter) -> None:
    with pytest.raises(SubmissionError, match="prefix"):
        drafter.submit([Submission("a", 5, [1], 2)])


class Broken:
    """A channel that works until it is told to fail."""

    def __init__(self, address: str, error: Exception) -> None:
        self._inner = ZmqChannel(address)
        self._error = error
        self.fail = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def poll(self, timeout: float) -> list[object]:
        if self.fail:
            raise self._error
        return list(self._inner.poll(timeout))


@pytest.mark.parametrize("error", [TransportError("no more sockets"), RuntimeError("a fault of ours")])
def test_an_error_on_the_io_thread_costs_a_session_and_is_told_once(
    address: str, server: Server, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "sidedraft.verifier")
    channels: list[Broken] = []

    def factory() -> Channel:
        if len(channels) == 1:
            channels.append(channels[0])
            raise TransportError("cannot be opened now")
        channels.append(Broken(address, error))
        return channels[-1]  # type: ignore[return-value]

    with make(address, factory) as drafter:
        assert drafter.wait_connected(BOUND)
        drafted(drafter, submission([1]))
        channels[0].fail = True
        eventually(lambda: drafter.status().counters["sessions"] == 2)
        assert drafter.status().counters["crashes"] == 2
        tokens = [1]

        def resumes() -> bool:
            tokens.append(2)
            one = submission([2], first=len(tokens) - 1)
            return isinstance(drafter.submit([one]).result()["a"], Draft)

        eventually(resumes)
    told = [record for record in caplog.records if "I/O failed" in record.getMessage()]
    assert len(told) == 1
    assert str(error) in told[0].getMessage()
