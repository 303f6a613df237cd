"""A draft server that is nothing but its promises: committed tokens per request, and strict order.

It speaks the real wire over any listener and keeps what it is told. Its drafts are a function of every
committed token and the anchor, so that a draft applied to any other base is seen at once.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from sidedraft.transport.base import Lane, Listener, PeerId, Received
from sidedraft.wire import messages as m
from sidedraft.wire.advance import Advance, Answer, Outcome
from sidedraft.wire.agreement import Agreement
from sidedraft.wire.batch import AdvanceBatch, AnswerBatch, refusal
from sidedraft.wire.codec import Codec
from sidedraft.wire.errors import Code, WireError
from sidedraft.wire.handshake import ServerFacts, negotiate, welcome
from sidedraft.wire.headers import End

VOCAB, HIDDEN, TAPS, MAX_DEPTH = 97, 4, (2,), 4
ROW_WIDTH = HIDDEN * len(TAPS)

LIMITS = m.SessionLimits(
    control_payload=4096, bulk_payload=1024, bulk_credit=4096, requests=64, batch=64, context=400
)
TARGET = m.TargetFacts(taps=TAPS, hidden_size=HIDDEN, vocab_size=VOCAB)
DRAFT = m.DraftFacts(family="dspark", layout="anchor", max_depth=MAX_DEPTH)


def draft_of(tokens: Sequence[int], anchor: int, depth: int) -> list[int]:
    """The only right draft for this base."""
    state = zlib.crc32(np.asarray([*tokens, anchor], np.int32).tobytes())
    return [zlib.crc32(bytes([j]), state) % VOCAB for j in range(depth)]


def rows_of(first: int, tokens: Sequence[int]) -> np.ndarray:
    """Rows that say which position and token they belong to, float32 [n, ROW_WIDTH]."""
    rows = np.zeros((len(tokens), ROW_WIDTH), np.float32)
    rows[:, 0] = np.arange(first, first + len(tokens))
    rows[:, 1] = tokens
    return rows


@dataclass
class Held:
    """What the server knows of one request."""

    generation: int
    tokens: list[int] = field(default_factory=list)
    next: int = 0
    waiting: dict[int, tuple[Advance, float, int]] = field(default_factory=dict)
    rows: set[int] = field(default_factory=set)


@dataclass
class Peer:
    """One session."""

    agreement: Agreement
    control: PeerId
    codec: Codec
    requests: dict[int, Held] = field(default_factory=dict)
    uncredited: int = 0
    """Bulk bytes received and not given back."""
    bulk_serials: set[int] = field(default_factory=set)


class ModelServer:
    """`turn` does what is due; `service` seconds pass between a batch's arrival and its answer."""

    def __init__(
        self,
        listen: Callable[[], Listener],
        clock: Callable[[], float],
        *,
        service: float = 0.004,
        epoch: int = 1000,
    ) -> None:
        self.listen = listen
        self.clock = clock
        self.service = service
        self.confused: list[str] = []
        """Things no honest verifier sends: must stay empty unless messages are corrupted."""
        self.opened = 0
        self.rows = 0
        self.reports: list[m.Report] = []
        self.minors = (m.MINOR_LOWEST, m.MINOR_HIGHEST)
        self.refuse: str = ""
        """A detail: hellos are refused with it."""
        self.mute = False
        """True: the process is stopped; nothing is read or answered."""
        self._epochs = itertools.count(epoch)
        self._sessions = itertools.count(1)
        self.listener: Listener | None = None
        self.start()

    def start(self) -> None:
        """A new process with an empty memory."""
        self.epoch = next(self._epochs)
        self.peers: dict[int, Peer] = {}
        self._queue: list[tuple[float, Peer, AdvanceBatch, int]] = []
        self._progress = 0
        self.listener = self.listen()

    def kill(self) -> None:
        if self.listener is not None:
            self.listener.close()
            self.listener = None

    @property
    def alive(self) -> bool:
        return self.listener is not None

    def next_due(self) -> float | None:
        if not self.alive or self.mute or not self._queue:
            return None
        return self._queue[0][0]

    def turn(self, timeout: float = 0.0) -> None:
        """Read what is there, waiting up to `timeout` for it, and do what is due."""
        if self.listener is None or self.mute:
            return
        for event in self.listener.poll(timeout):
            if isinstance(event, Received):
                self._read(event)
        while self._queue and self._queue[0][0] <= self.clock():
            _, peer, batch, credit = self._queue.pop(0)
            self._work(peer, batch, credit)

    # Messages.

    def _read(self, event: Received) -> None:
        bulk = event.lane is Lane.BULK
        greeting = Codec(End.SERVER)
        for peer in [*self.peers.values(), None]:
            codec = greeting if peer is None else peer.codec
            try:
                message = codec.decode(event.frames, bulk=bulk)
            except WireError as error:
                if error.code is not Code.STALE_SESSION and peer is not None:
                    self.confused.append(str(error))
                    return
                continue
            if isinstance(message, m.Hello):
                self._greet(event.peer, message)
            elif peer is not None:
                payload = len(event.frames[1]) if len(event.frames) == 2 else 0
                self._take(peer, message, bulk, payload)
            return

    def _greet(self, control: PeerId, hello: m.Hello) -> None:
        facts = ServerFacts(
            software="model",
            epoch=self.epoch,
            target=TARGET,
            draft=DRAFT,
            max_depth=MAX_DEPTH,
            limits=LIMITS,
            minors=self.minors,
        )
        for session in [s for s, peer in self.peers.items() if peer.control == control]:
            del self.peers[session]
        session = next(self._sessions) + 10_000 * self.epoch
        agreed = negotiate(hello, facts, session)
        if self.refuse:
            agreed = m.Refusal(code="draining", detail=self.refuse)
        if isinstance(agreed, m.Refusal):
            self._say(control, Codec(End.SERVER), agreed)
            return
        codec = Codec(End.SERVER, agreed)
        self.peers[session] = Peer(agreed, control, codec)
        self._say(control, codec, welcome(agreed, "model"))

    def _take(self, peer: Peer, message: object, bulk: bool, payload: int) -> None:
        if isinstance(message, AdvanceBatch):
            self._queue.append((self.clock() + self.service, peer, message, payload if bulk else 0))
            if bulk and message.serial not in peer.bulk_serials:  # the network may have doubled it
                peer.bulk_serials.add(message.serial)
                peer.uncredited += payload
            if peer.uncredited > LIMITS.bulk_credit:
                self.confused.append(f"{peer.uncredited} bytes of bulk without credit")
        elif isinstance(message, m.Heartbeat):
            pulse = m.Pulse(
                **_ids(peer), serial=message.serial, progress=self._progress, queued=0, phase="ready"
            )
            self._say(peer.control, peer.codec, pulse)
        elif isinstance(message, m.Report):
            self.reports.append(message)
        elif isinstance(message, m.Release):
            for request, generation in zip(message.requests, message.generations, strict=True):
                held = peer.requests.get(request)
                if held is not None and held.generation <= generation:
                    del peer.requests[request]
        elif isinstance(message, m.Goodbye):
            self.peers.pop(peer.agreement.session, None)

    # Work.

    def _work(self, peer: Peer, batch: AdvanceBatch, credit: int) -> None:
        if peer.agreement.session not in self.peers:
            return
        self._progress += 1
        arrived = self.clock() - self.service
        answers = [a for error in batch.refused if (a := refusal(error)) is not None]
        if batch.refused:
            self.confused += [str(error) for error in batch.refused]
        for advance in batch.advances:
            answers += self._advance(peer, advance, arrived, batch.budget_us)
        peer.uncredited = max(0, peer.uncredited - credit)
        if credit:
            self._say(peer.control, peer.codec, m.Credit(**_ids(peer), bytes=credit))
        for start in range(0, len(answers), LIMITS.batch):
            some = answers[start : start + LIMITS.batch]
            message = AnswerBatch(**_ids(peer), serial=batch.serial, answers=some)
            self._say(peer.control, peer.codec, message)

    def _advance(self, peer: Peer, advance: Advance, arrived: float, budget_us: int) -> list[Answer]:
        held = peer.requests.get(advance.request)
        if held is not None and advance.generation < held.generation:
            return [self._refuse(advance, Code.STALE_GENERATION)]
        if held is None or advance.generation > held.generation:
            held = peer.requests[advance.request] = Held(advance.generation)
        if advance.number < held.next:
            return [self._refuse(advance, Code.OUT_OF_ORDER)]
        held.waiting[advance.number] = (advance, arrived, budget_us)
        answers = []
        while held.next in held.waiting:
            ready, since, budget = held.waiting.pop(held.next)
            held.next += 1
            answers.append(self._apply(held, ready, since, budget))
        return answers

    def _apply(self, held: Held, advance: Advance, arrived: float, budget_us: int) -> Answer:
        if advance.opening is not None:
            self.opened += 1
            held.tokens = advance.opening.prefix.tolist()
        if advance.first > len(held.tokens):
            return self._refuse(advance, Code.GAP)
        held.tokens = held.tokens[: advance.first] + advance.tokens.tolist()
        if advance.rows is not None:
            self._check_rows(held, advance)
        answer = Answer(
            advance.request, advance.generation, advance.number, Outcome.INGESTED, committed=len(held.tokens)
        )
        answer.context_start = len(held.tokens)
        if not advance.depth:
            return answer
        if budget_us and self.clock() > arrived + budget_us / 1e6:
            answer.outcome = Outcome.EXPIRED
        elif held.waiting:
            answer.outcome = Outcome.SUPERSEDED
        else:
            answer.outcome = Outcome.DRAFTED
            draft = draft_of(held.tokens, advance.next_token, advance.depth)
            answer.tokens = np.asarray(draft, np.int32)
        return answer

    def _check_rows(self, held: Held, advance: Advance) -> None:
        assert advance.rows is not None
        rows = np.frombuffer(advance.rows.tobytes(), np.float32).reshape(-1, ROW_WIDTH)
        start, end = advance.rows_at, advance.rows_at + len(rows)
        if not np.array_equal(rows, rows_of(start, held.tokens[start:end])):
            self.confused.append(f"rows of [{start}, {end}) are not those of their tokens")
        held.rows.update(range(start, end))
        self.rows += len(rows)

    def _refuse(self, advance: Advance, code: Code) -> Answer:
        return Answer(
            advance.request,
            advance.generation,
            advance.number,
            Outcome.REFUSED,
            error=code.value,
            detail="model",
        )

    def _say(self, peer: PeerId, codec: Codec, message: m.Message | AnswerBatch) -> None:
        assert self.listener is not None
        self.listener.send(peer, Lane.CONTROL, codec.encode(message))


def _ids(peer: Peer) -> dict[str, int]:
    return {"session": peer.agreement.session, "epoch": peer.agreement.epoch}
