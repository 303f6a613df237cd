"""Messages to frames and back: the only place where bytes of a peer are read.

A `Codec` belongs to one end of one session. Bounds come first: nothing is decoded, let alone allocated,
before the sizes of the frames are within what was agreed.
"""

from __future__ import annotations

from collections.abc import Sequence

from sidedraft.wire import advance_codec, answer_codec, headers
from sidedraft.wire import messages as m
from sidedraft.wire.agreement import Agreement
from sidedraft.wire.batch import AdvanceBatch, Advances, AnswerBatch, Answers
from sidedraft.wire.errors import Code, WireError
from sidedraft.wire.headers import End, Header
from sidedraft.wire.payload import Frame, Layout
from sidedraft.wire.validate import check
from sidedraft.wire.versions import check_agreed

__all__ = ["Batch", "Codec", "Decoded", "End"]

Batch = AdvanceBatch | AnswerBatch
Decoded = m.Message | AdvanceBatch | AnswerBatch

_NO_PAYLOAD = memoryview(b"")

# Judged by the receiver's state machine, not against the session it holds: the first three make a session,
# and a failure may say that there is none.
_ANY_SESSION = (m.Hello, m.Welcome, m.Refusal, m.Failure)


class Codec:
    """Encoder and decoder of one end. Before the handshake (`agreement` None) it knows no batches."""

    def __init__(self, end: End, agreement: Agreement | None = None) -> None:
        self.end = end
        self.agreement = agreement

    def encode(
        self, message: Decoded, *, bulk: bool = False, payload: memoryview | None = None
    ) -> list[Frame]:
        """Frames of a message: a header, and a payload unless it would be empty.

        `bulk` says on which connection it will go. `payload` is a batch's payload as `pack_payload_into`
        made it; without one it is packed into new memory.

        Raises:
            WireError: the message breaks a rule, or a limit of the session.
        """
        if isinstance(message, AdvanceBatch | AnswerBatch):
            return self._encode_batch(message, bulk, payload)
        self._check(message, self.end.peer, bulk)
        return [headers.encode(message)]

    def payload_size(self, batch: Batch) -> int:
        """Bytes of a batch's payload frame; 0 when it has none."""
        return self._layout(batch).size

    def pack_payload_into(self, batch: Batch, buffer: memoryview) -> memoryview:
        """Write a batch's payload to the beginning of a writable buffer; returns the part to be sent.

        Raises:
            WireError: the buffer is too small (`too_large`), or an array has another dtype or shape than
                its type says.
        """
        size = self.payload_size(batch)
        if size > buffer.nbytes:
            raise WireError(Code.TOO_LARGE, "payload", f"{size} bytes", f"at most {buffer.nbytes} bytes")
        if isinstance(batch, AdvanceBatch):
            return advance_codec.pack(batch, self._agreed().row_bytes, buffer.cast("B"))
        return answer_codec.pack(batch, buffer.cast("B"))

    def decode(self, frames: Sequence[Frame], *, bulk: bool = False) -> Decoded:
        """The message in these frames. A batch's arrays are views of the payload frame.

        `bulk` says that it came on the bulk connection.

        Raises:
            WireError: the whole message is unusable. With `stale_session` it is of an earlier session or
                epoch: to be dropped and counted.
        """
        if not 1 <= len(frames) <= 2:
            raise WireError(Code.MALFORMED, "frames", len(frames), "a header and at most one payload")
        payload = memoryview(frames[1]).cast("B") if len(frames) == 2 else _NO_PAYLOAD
        self._check_payload(payload.nbytes, bulk)
        header = headers.decode(memoryview(frames[0]).cast("B"), self.end)
        self._check(header, self.end, bulk)
        if isinstance(header, Advances):
            return advance_codec.decode(header, payload, self._agreed())
        if isinstance(header, Answers):
            return answer_codec.decode(header, payload, self._agreed())
        if payload.nbytes:
            raise WireError(Code.BAD_PAYLOAD, "payload", f"{payload.nbytes} bytes", "none")
        return header

    def _encode_batch(self, batch: Batch, bulk: bool, payload: memoryview | None) -> list[Frame]:
        header: Header
        rows = len(batch.advances if isinstance(batch, AdvanceBatch) else batch.answers)
        most = self._agreed().limits.batch
        if not 1 <= rows <= most:
            raise WireError(Code.TOO_LARGE, "batch", f"{rows} rows", f"1 to {most} rows")
        size = self.payload_size(batch)
        self._check_payload(size, bulk)
        if isinstance(batch, AdvanceBatch):
            header = advance_codec.header(batch)
        else:
            header = answer_codec.header(batch)
        self._check(header, self.end.peer, bulk)
        if payload is None:
            payload = self.pack_payload_into(batch, memoryview(bytearray(size)))
        elif payload.nbytes != size:
            raise WireError(Code.BAD_PAYLOAD, "payload", f"{payload.nbytes} bytes", f"{size} bytes")
        head = self._encode_header(header, batch)
        return [head, payload] if size else [head]

    def _encode_header(self, header: Header, batch: Batch) -> bytes:
        try:
            return headers.encode(header)
        except WireError:
            if isinstance(batch, AdvanceBatch):
                raise
            # Answers have to go out: their codes always fit, their words need not.
            return headers.encode(answer_codec.header(batch, details=False))

    def _check(self, header: m.Message, receiver: End, bulk: bool) -> None:
        """Everything but a batch's columns: direction, connection, ranges, session, and what was agreed."""
        name = headers.name(header)
        if not isinstance(header, headers.UNDERSTOOD[receiver]):
            raise WireError(Code.UNEXPECTED, "type", name, f"a message to the {receiver.value}")
        if bulk and not isinstance(header, Advances):
            raise WireError(Code.UNEXPECTED, "type", name, "advances, on the bulk connection")
        check(header)
        agreement = self.agreement
        if agreement is None or isinstance(header, _ANY_SESSION):
            return
        for field in ("session", "epoch"):
            value, current = getattr(header, field), getattr(agreement, field)
            if value != current:
                raise WireError(Code.STALE_SESSION, field, value, f"{current}, the current one")
        check_agreed(header, agreement.minor, agreement.features)

    def _check_payload(self, size: int, bulk: bool) -> None:
        """Before a handshake no message has a payload; on the bulk connection every one has."""
        if not size and not bulk:
            return
        limits = self._agreed().limits
        least, most = (1, limits.bulk_payload) if bulk else (0, limits.control_payload)
        if not least <= size <= most:
            code = Code.TOO_LARGE if size > most else Code.BAD_PAYLOAD
            raise WireError(code, "payload", f"{size} bytes", f"{least} to {most} bytes")

    def _layout(self, batch: Batch) -> Layout:
        if isinstance(batch, AdvanceBatch):
            return advance_codec.layout(batch, self._agreed().row_bytes)
        return answer_codec.layout(batch)

    def _agreed(self) -> Agreement:
        if self.agreement is None:
            raise WireError(Code.UNKNOWN_SESSION, "session", "none", "a handshake before any batch")
        return self.agreement
