"""`Drafter`: a draft server as an inference engine sees it."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from types import TracebackType

from sidedraft.device import Runtime
from sidedraft.settings import VerifierSettings
from sidedraft.transport.base import Channel
from sidedraft.verifier import submitting
from sidedraft.verifier.facts import VerifierFacts
from sidedraft.verifier.filling import Filler
from sidedraft.verifier.io_thread import IoThread
from sidedraft.verifier.pending import Pending
from sidedraft.verifier.shared import Clock, Shared
from sidedraft.verifier.state.breaker import BreakerState
from sidedraft.verifier.submission import Submission
from sidedraft.verifier.submitting import ReadyEvent
from sidedraft.wire.agreement import Agreement

_log = logging.getLogger("sidedraft.verifier")

CLOSE_TIMEOUT = 2.0
"""Seconds that `close` waits for the I/O thread."""


@dataclass(frozen=True, slots=True)
class Status:
    """A drafter at one moment."""

    address: str
    connected: bool
    """There is a session."""
    breaker: BreakerState
    cause: str
    """Why the breaker is not closed; empty when it is."""
    refusal: str
    """Why the server refused a session, in its words."""
    agreement: Agreement | None
    requests: int
    """Requests submitted and not released."""
    behind: int
    """Of those, how many the server has to catch up with."""
    deadline_s: float
    """What the next step would wait at most."""
    latency_s: float | None
    """Running median of proposal latency; None before the first."""
    phase: str
    """The server's, from its latest heartbeat; empty without one."""
    progress: int | None
    """Engine steps the server has completed, by its latest heartbeat."""
    queued: int | None
    """Advances that wait for the server's engine, by its latest heartbeat."""
    acceptance_length: float | None
    """Mean tokens that a step with a draft yielded, fillers excluded; None before the first."""
    counters: dict[str, int]
    """`state.counters.Counters` by name."""


class Drafter:
    """Asks a draft server for drafts, step by step, and never lets the engine wait past a deadline.

    Returns at once, whether or not a server is there: it connects in the background, for ever. `submit`,
    `Pending.result` and `release` belong to one engine thread; `status` and `close` may be called by any.
    Nothing here raises for what a server or a network does; only a caller's own mistakes raise.

    Args:
        address: of the server: `ipc://PATH` or `tcp://HOST:PORT`. A bad one raises `AddressError`, a file of
            keys that cannot be used `KeyFileError`.
        facts: what this verifier tells every server.
        channel_factory: opens another kind of channel, instead of `ZmqChannel(address)`.
        clock: seconds, never going back; deadlines are by it.
        random: jitter of the retries.
        runtime: of the device that rows come from; None when they are on the host. Rows that lie on another
            device than this one are waited for.
    """

    def __init__(
        self,
        address: str,
        facts: VerifierFacts,
        settings: VerifierSettings | None = None,
        channel_factory: Callable[[], Channel] | None = None,
        clock: Clock = time.monotonic,
        random: Random | None = None,
        runtime: Runtime | None = None,
    ) -> None:
        settings = VerifierSettings() if settings is None else settings
        random = Random() if random is None else random
        if channel_factory is None:
            channel_factory = _zmq(address, settings)
        self.address = address
        self.facts = facts
        self.clock = clock
        self._shared = Shared(facts, settings, clock, random, runtime=runtime)
        self._filler = Filler(self._shared)
        self._io = IoThread(self._shared, channel_factory, settings, random, address)
        self._io.start()

    def submit(self, submissions: Sequence[Submission], ready: ReadyEvent | None = None) -> Pending:
        """State one step of any number of requests, each at most once, and ask for their drafts.

        Returns when the rows have been copied, or, with the `runtime` of a device, when their copies are in
        its queue; the engine may reuse its tensors then. Bounded by the step's deadline: rows that find no
        send buffer by then are left out, a counted hole in the draft's context.

        Args:
            ready: says when the rows are computed; None when they are, or when the device's current stream
                computes them.

        Raises:
            SubmissionError: a submission is wrong in itself or contradicts an earlier one; nothing happened.
        """
        step = submitting.submit(self._shared, self._filler, submissions, ready)
        return Pending(self._shared, step, submissions)

    def reserve(self, size: int) -> int:
        """Make send buffers for `size` bytes of rows now, before the first step needs them: on a GPU that
        takes a while. Gives how many bytes there are, `staging_segments` allowing."""
        return self._shared.reserve(size)

    def release(self, requests: Iterable[Hashable]) -> None:
        """These requests ended, or were preempted: a later submission of one begins anew. The server keeps
        what it learned of their prefixes."""
        with self._shared.changed:
            self._shared.session.release(self.clock(), requests)
            self._shared.wake()

    def observe(self, stage: str, seconds: float) -> None:
        """Time of a stage that only the engine sees: `metadata_d2h`, `context_gather`, or `tokens_h2d` when
        it does not use `Pending.write_into`. Raises `ValueError` for an unknown stage."""
        with self._shared.changed:
            self._shared.session.figures.stages.observe(stage, seconds)

    def count_fillers(self, count: int) -> None:
        """Places that the engine filled itself because there was no draft; `Pending.write_into` counts its
        own."""
        with self._shared.changed:
            self._shared.session.counters.fillers += count

    @property
    def asking(self) -> bool:
        """False while the breaker is open: steps get no drafts, and may as well run at depth 0."""
        return self._shared.session.ladder.breaker.closed

    @property
    def connected(self) -> bool:
        """There is a session. Without one a submission reaches nobody: a request may as well be released, and
        stated anew, by its prefix, when there is one again."""
        return self._shared.session.agreement is not None

    @property
    def depth(self) -> int:
        """Most draft tokens that a step can get now: as agreed with the server, 0 while no step asks."""
        session = self._shared.session
        agreement = session.agreement
        return agreement.max_depth if agreement is not None and session.ladder.breaker.closed else 0

    def wait_connected(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds for a session; engines need not, tools may."""
        session = self._shared.session
        return self._shared.wait(lambda: session.agreement is not None, self.clock() + timeout)

    def status(self) -> Status:
        """Everything there is to show."""
        with self._shared.changed:
            session = self._shared.session
            ladder, pulse = session.ladder, session.pulse
            return Status(
                address=self.address,
                connected=session.agreement is not None,
                breaker=ladder.breaker.state,
                cause="" if ladder.breaker.closed else ladder.breaker.cause.value,
                refusal=session.refusal,
                agreement=session.agreement,
                requests=len(ladder.requests),
                behind=sum(request.behind for request in ladder.requests.values()),
                deadline_s=ladder.patience.seconds(),
                latency_s=ladder.patience.median,
                phase="" if pulse is None else pulse.phase,
                progress=None if pulse is None else pulse.progress,
                queued=None if pulse is None else pulse.queued,
                acceptance_length=session.figures.acceptance.length,
                counters=dataclasses.asdict(session.counters),
            )

    def close(self) -> None:
        """Say goodbye and stop the I/O thread. Steps under way, and later ones, get no drafts."""
        if not self._filler.stop(CLOSE_TIMEOUT):
            _log.warning("%s: rows are still waited for after %g s", self.address, CLOSE_TIMEOUT)
        if not self._io.stop(CLOSE_TIMEOUT):
            _log.warning("%s: the I/O thread did not stop within %g s", self.address, CLOSE_TIMEOUT)

    def __enter__(self) -> Drafter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _zmq(address: str, settings: VerifierSettings) -> Callable[[], Channel]:
    """Opens the real channel; address and keys are read now, so that a bad one raises where it was given."""
    from sidedraft.transport.address import for_connecting, parse_address
    from sidedraft.transport.keys import read_verifier_keys
    from sidedraft.transport.zmq import ZmqChannel

    keys = read_verifier_keys(settings.server_key, settings.client_key)
    plain = settings.insecure_plain_text
    for_connecting(parse_address(address, open_to_others=plain or keys is not None))
    return lambda: ZmqChannel(address, settings.limits, insecure_plain_text=plain, keys=keys)
