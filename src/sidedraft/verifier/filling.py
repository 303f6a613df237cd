"""From a planned parcel to one that is on its way: a buffer, its rows, and word to the I/O thread.

On the host rows are copied here and now. From a device they are copied by a queue of its own, and a thread of
ours passes the parcel on when they are there; the engine's thread waits for neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext

import torch
from torch import Tensor

from sidedraft.verifier.buffers import Buffer, Memory
from sidedraft.verifier.encoding import encode_rows
from sidedraft.verifier.handoff import Handoff
from sidedraft.verifier.shared import Shared
from sidedraft.verifier.staging import Put, fill, fill_without_rows
from sidedraft.verifier.state.cutting import Parcel
from sidedraft.verifier.state.news import Rung
from sidedraft.verifier.submission import Rows
from sidedraft.wire.agreement import Agreement


class Filler:
    """Used by the engine's thread, but for what `Handoff` calls."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._handoffs: dict[bool, Handoff] = {}
        for bulk, name in ((False, "control"), (True, "bulk")):
            transfers = shared.runtime.transfers()
            if transfers is not None:
                self._handoffs[bulk] = Handoff(transfers, self._arrived, f"sidedraft-verifier-{name}-rows")

    def stop(self, timeout: float) -> bool:
        """Whether nothing waits for a device any more, after at most `timeout` seconds a queue."""
        ended = [handoff.stop(timeout) for handoff in self._handoffs.values()]
        return all(ended)

    def orders(self, rows: Sequence[Rows | None], ready: object) -> bool:
        """Whether the device itself makes all copies of these rows wait for `ready`."""
        handoff = self._handoffs.get(True)
        return handoff is not None and handoff.transfers.orders(ready) and _are_on(handoff, rows)

    def send(
        self,
        parcel: Parcel,
        rows: Sequence[Rows | None],
        agreement: Agreement,
        until: float,
        *,
        ready: object = None,
        why_not: str = "",
    ) -> None:
        """Fill the payload and pass the parcel on. Rows that find no free buffer by `until` stay here, and so
        they do when `why_not` says something.

        Args:
            ready: what a device's copies wait for, see `Transfers.beside`.
        """
        if not parcel.layout.tail:
            fill_without_rows(parcel)
            self._pass_on(parcel)
            return
        buffer = None if why_not else self._take(parcel, until)
        if buffer is None:
            self._leave_rows(parcel, why_not or "no send buffer was free in time")
            return
        handoff = self._handoffs.get(parcel.bulk)
        if handoff is not None and not _are_on(handoff, [rows[piece.source] for piece in parcel.pieces]):
            handoff = None
        try:
            with nullcontext() if handoff is None else handoff.transfers.beside(ready):
                fill(parcel, rows, buffer, agreement.row_bytes, self._put(agreement, handoff))
            if handoff is not None:
                handoff.put(parcel)
        except Exception as error:  # a device's fault must not reach the engine as one of ours
            self._give_up(parcel, buffer, error, sure=handoff is None)
        else:
            if handoff is None:
                self._pass_on(parcel)

    def _put(self, agreement: Agreement, handoff: Handoff | None) -> Put:
        row_format, projection = agreement.row_format, self._shared.facts.projection

        def put(rows: Rows, out: Memory) -> None:
            encode_rows(rows, row_format, out, projection)

        def put_beside(rows: Rows, out: Memory) -> None:
            assert handoff is not None
            encoded = torch.empty(len(out), dtype=torch.uint8, device=handoff.transfers.device)
            encode_rows(rows, row_format, encoded, projection)
            handoff.transfers.copy(encoded, torch.from_numpy(out))

        return put if handoff is None else put_beside

    def _arrived(self, parcel: Parcel, failure: Exception | None) -> None:
        """On the thread of a handoff."""
        if failure is None:
            self._pass_on(parcel)
        else:
            self._give_up(parcel, parcel.buffer, failure, sure=False)

    def _give_up(self, parcel: Parcel, buffer: Buffer, error: Exception, *, sure: bool) -> None:
        """Copying failed. The buffer is used again if it is `sure` that nothing writes it any more."""
        with self._shared.changed:
            if sure:
                buffer.pool.give(buffer)
            else:
                buffer.pool.abandon(buffer)
                self._shared.session.counters.buffers_abandoned += 1
        self._leave_rows(parcel, f"copying them failed: {error}")

    def _leave_rows(self, parcel: Parcel, why: str) -> None:
        rows = sum(len(piece.rows) for piece in parcel.pieces)
        fill_without_rows(parcel)
        with self._shared.changed:
            self._shared.session.counters.rows_dropped += rows
            self._shared.session.news.add(
                Rung.STAGING, f"{rows} rows stay here, a hole in the context: {why}"
            )
        self._pass_on(parcel)

    def _pass_on(self, parcel: Parcel) -> None:
        shared = self._shared
        with shared.changed:
            shared.session.outbox.dispatch(shared.clock(), parcel)
            shared.wake()

    def _take(self, parcel: Parcel, until: float) -> Buffer | None:
        """A buffer. They come back while earlier parcels go out, so it is worth waiting for one, but not
        while the breaker is open: then no step waits for the server in any way."""
        found: list[Buffer] = []

        def decided() -> bool:
            buffer = self._shared.take_buffer(bulk=parcel.bulk)
            if buffer is not None:
                found.append(buffer)
            return bool(found) or not self._shared.session.ladder.breaker.closed

        self._shared.wait(decided, until)
        return found[0] if found else None


def _are_on(handoff: Handoff, rows: Sequence[Rows | None]) -> bool:
    """Whether all rows there are lie on the handoff's device."""
    device = handoff.transfers.device
    return all(isinstance(one, Tensor) and one.device == device for one in rows if one is not None)
