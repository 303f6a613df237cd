"""Who is connected: sessions by id and by connection, and how long each may be silent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypedDict

from sidedraft.transport.base import Lane, PeerId
from sidedraft.transport.clients import Client
from sidedraft.wire.advance import Advance, Answer
from sidedraft.wire.agreement import Agreement
from sidedraft.wire.codec import Codec
from sidedraft.wire.headers import End
from sidedraft.wire.messages import Report

PAUSE = 1.0
"""Seconds between two looks at leases, far more than there are when the server runs."""


class Ids(TypedDict):
    """Session and epoch."""

    session: int
    epoch: int


@dataclass(slots=True, eq=False)
class Session:
    """One verifier's session. Owned by the I/O thread."""

    owner: int
    """Names the session inside this process; unlike its id it may be logged."""
    agreement: Agreement
    verifier: str
    """The verifier's own label."""
    control: PeerId
    heard: float
    """When anything of it arrived last."""
    codec: Codec = field(init=False)
    bulk: PeerId | None = None
    """Its bulk connection, known from its first message there."""
    report: Report | None = None
    """Its verifier's latest word on itself. Read by any thread."""
    client: Client | None = None
    """Whose key it has; None where there are no keys."""
    requests: dict[int, int] = field(default_factory=dict)
    """Requests that are open, or about to be, and their generation."""
    rows: int = 0
    """Context rows that it sent and its requests hold, as far as the engine has told."""
    unanswered: int = 0
    """Advances taken and not yet answered."""
    _rows: dict[int, int] = field(default_factory=dict)
    """The same, by request."""
    held: dict[Lane, int] = field(default_factory=lambda: dict.fromkeys(Lane, 0))
    """Bytes of payload that unanswered advances read from. On the bulk lane: credit not yet given back."""

    def __post_init__(self) -> None:
        self.codec = Codec(End.SERVER, self.agreement)

    @property
    def ids(self) -> Ids:
        """What every message of the session carries."""
        return {"session": self.agreement.session, "epoch": self.agreement.epoch}

    def rows_with(self, advance: Advance) -> int:
        """Rows held if this advance is taken: a new generation takes the place of what its request held."""
        replaced = advance.generation > self.requests.get(advance.request, advance.generation)
        return self.rows + advance.row_count - (self._rows.get(advance.request, 0) if replaced else 0)

    def take(self, advance: Advance) -> None:
        """An advance is on its way to the engine: its request is open, or about to be."""
        if advance.generation > self.requests.get(advance.request, -1):
            self._set_rows(advance.request, 0)
            self.requests[advance.request] = advance.generation
        if advance.generation == self.requests[advance.request]:
            self._set_rows(advance.request, self._rows.get(advance.request, 0) + advance.row_count)

    def answered(self, answer: Answer) -> None:
        """A request holds no more rows than the engine says; what was found in the index was not sent."""
        sent = self._rows.get(answer.request)
        if sent is not None and self.requests.get(answer.request) == answer.generation:
            self._set_rows(answer.request, min(sent, answer.rows_present))

    def close_request(self, request: int, generation: int) -> None:
        """This generation of a request, and those before it, are over."""
        if self.requests.get(request, generation + 1) <= generation:
            del self.requests[request]
            self._set_rows(request, 0)

    def _set_rows(self, request: int, count: int) -> None:
        self.rows += count - self._rows.pop(request, 0)
        if count:
            self._rows[request] = count


class Sessions:
    """The table of sessions. Pure: time is passed in."""

    def __init__(self) -> None:
        self._by_id: dict[int, Session] = {}
        self._by_owner: dict[int, Session] = {}
        self._by_peer: dict[tuple[Lane, PeerId], Session] = {}
        self._looked = 0.0

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._by_id.values()))

    def add(self, session: Session) -> None:
        self._by_id[session.agreement.session] = session
        self._by_owner[session.owner] = session
        self._by_peer[Lane.CONTROL, session.control] = session

    def of_peer(self, lane: Lane, peer: PeerId) -> Session | None:
        return self._by_peer.get((lane, peer))

    def of_id(self, session: int) -> Session | None:
        return self._by_id.get(session)

    def of_owner(self, owner: int) -> Session | None:
        return self._by_owner.get(owner)

    def join_bulk(self, session: Session, peer: PeerId) -> None:
        """Bind a bulk connection; a reconnected one takes the place of the old."""
        if session.bulk is not None:
            self._by_peer.pop((Lane.BULK, session.bulk), None)
        session.bulk = peer
        self._by_peer[Lane.BULK, peer] = session

    def leave_bulk(self, peer: PeerId) -> None:
        """A bulk connection is gone; the session goes on without."""
        session = self._by_peer.pop((Lane.BULK, peer), None)
        if session is not None:
            session.bulk = None

    def remove(self, session: Session) -> None:
        """Without effect the second time: its connection may have become another session's."""
        if self._by_id.pop(session.agreement.session, None) is None:
            return
        self._by_owner.pop(session.owner, None)
        self._by_peer.pop((Lane.CONTROL, session.control), None)
        if session.bulk is not None:
            self._by_peer.pop((Lane.BULK, session.bulk), None)

    def expired(self, now: float) -> list[Session]:
        """Sessions that were silent for longer than their lease. To be called often: after a pause it was
        this server that could not hear, and everybody's lease begins anew."""
        if now - self._looked > PAUSE:
            for session in self._by_id.values():
                session.heard = now
        self._looked = now
        return [s for s in self._by_id.values() if now - s.heard > s.agreement.lease_ms / 1000]
