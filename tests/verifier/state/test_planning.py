"""What is sent of a submission, and how a request is opened: said directly to the state machine."""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidedraft.settings import VerifierSettings
from sidedraft.verifier.state.cutting import Parcel
from sidedraft.verifier.state.entry import Entry
from sidedraft.verifier.state.session import Session
from sidedraft.wire import messages as m
from support.ladder_world import facts
from support.model_server import LIMITS


def welcomed(
    *, window: int | msgspec.UnsetType | None, retain: str = "window", sharing: bool = True
) -> Session:
    settings = VerifierSettings(sharing=sharing)
    session = Session(facts().hello(settings), settings, Random(0))
    session.connected(0.0, bulk=False)
    session.tick(0.0)
    old = window is msgspec.UNSET
    session.receive(
        0.0,
        m.Welcome(
            session=11,
            epoch=22,
            minor=1 if old else 2,
            software="test",
            row_format="f32",
            max_depth=4,
            limits=LIMITS,
            identity="partial",
            heartbeat_ms=200,
            lease_ms=5000,
            window=window,
            retain=msgspec.UNSET if old else retain,
        ),
    )
    assert session.agreement is not None
    return session


def submit(session: Session, entry: Entry) -> list[Parcel]:
    _, parcels = session.submit(0.0, [entry], 0.0)
    return parcels


def part(first: int, count: int, *, depth: int = 0, horizon: int = 0, rows_at: int | None = None) -> Entry:
    """Rows for all tokens from `rows_at` on."""
    rows_at = first if rows_at is None else rows_at
    tokens = np.arange(first, first + count, dtype=np.int32)
    prefix = np.arange(first, dtype=np.int32)
    return Entry(
        "x", first, tokens, 7, depth, rows_at, first + count - rows_at, horizon=horizon, prefix=prefix
    )


def positions(parcels: list[Parcel], offset: int = 0) -> list[int]:
    """Of the rows that travel. Each piece takes those of the caller's rows, the first of which is of position
    `offset`, that its advance says."""
    found = []
    for piece in (piece for parcel in parcels for piece in parcel.pieces):
        low, count = piece.advance.rows_at, len(piece.rows)
        assert not count or piece.rows.start == low - offset
        assert piece.advance.first <= low <= low + count <= piece.advance.end
        found += range(low, low + count)
    return found


@pytest.mark.parametrize(
    ("window", "retain", "depth", "horizon", "first_sent"),
    [
        (None, "window", 0, 100, 20),
        (16, "all", 0, 100, 20),
        (msgspec.UNSET, "window", 0, 100, 20),
        (16, "window", 0, 0, 45),
        (16, "window", 0, 60, 45),
        (16, "window", 0, 65, 50),
        (16, "window", 0, 100, 60),
        (16, "window", 2, 65, 45),
        (1, "window", 2, 0, 60),
        (41, "window", 2, 0, 20),
        (40, "window", 2, 0, 21),
    ],
)
def test_rows_that_no_draft_can_see_stay_here_unless_they_are_kept_for_others(
    window: int | msgspec.UnsetType | None, retain: str, depth: int, horizon: int, first_sent: int
) -> None:
    """Rows of [20, 60): from an anchor at a, rows from a - (window - 1) on are visible."""
    session = welcomed(window=window, retain=retain)
    parcels = submit(session, part(20, 40, depth=depth, horizon=horizon))
    assert positions(parcels, 20) == list(range(first_sent, 60))
    tokens = [token for parcel in parcels for piece in parcel.pieces for token in piece.advance.tokens]
    assert tokens == list(range(20, 60)), "tokens are always complete"
    counters = session.counters
    assert counters.rows_skipped == first_sent - 20
    assert session.agreement is not None
    assert counters.bytes_skipped == counters.rows_skipped * session.agreement.row_bytes


@given(
    chunks=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    window=st.integers(1, 70),
    decoded=st.lists(st.integers(1, 5), max_size=8),
)
def test_every_draft_is_shown_the_whole_of_its_window(
    chunks: list[int], window: int, decoded: list[int]
) -> None:
    """Whatever the chunks of a prompt, and however it goes on, no row that a draft can see was left out."""
    session = welcomed(window=window)
    prompt, end, sent = sum(chunks), 0, set()
    for index, count in enumerate([*chunks, *decoded]):
        asks = index >= len(chunks) - 1
        sent |= set(positions(submit(session, part(end, count, depth=2 * asks, horizon=prompt)), end))
        end += count
        if asks:
            assert set(range(max(0, end - window + 1), end)) <= sent
    assert min(sent, default=prompt) >= max(0, prompt - window + 1), "and nothing before the first one's"


@pytest.mark.parametrize("sharing", [True, False])
def test_without_sharing_every_request_is_private(sharing: bool) -> None:
    [parcel] = submit(welcomed(window=None, sharing=sharing), part(3, 2))
    opening = parcel.pieces[0].advance.opening
    assert opening is not None
    assert opening.private is not sharing
