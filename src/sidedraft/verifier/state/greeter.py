"""Which welcome begins a session, and whether the server is still the one that remembers us."""

from __future__ import annotations

import dataclasses
from collections import deque

import msgspec

from sidedraft.settings import WireLimits
from sidedraft.wire import messages as m
from sidedraft.wire.agreement import Agreement
from sidedraft.wire.handshake import check_welcome

REMEMBERED = 16
"""Sessions whose late or repeated welcomes are recognised."""


class Greeter:
    """Holds our hello and what came of it."""

    def __init__(self, hello: m.Hello, limits: WireLimits) -> None:
        self.hello = hello
        self.epoch: int | None = None
        """Of the server that welcomed us last."""
        self._limits = limits
        self._seen: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)

    def read(self, welcome: m.Welcome) -> Agreement | None:
        """What was agreed, with payloads no greater than our buffers; None when it was read before.

        Raises:
            WireError: the server chose what the hello did not offer.
        """
        name = (welcome.session, welcome.epoch)
        if name in self._seen:
            return None
        agreement = check_welcome(self.hello, welcome)
        self._seen.append(name)
        ours, theirs = self._limits, agreement.limits
        capped = msgspec.structs.replace(
            theirs,
            control_payload=min(ours.control_payload, theirs.control_payload),
            bulk_payload=min(ours.bulk_payload, theirs.bulk_payload, theirs.bulk_credit),
        )
        return dataclasses.replace(agreement, limits=capped)

    def is_new_server(self, agreement: Agreement) -> bool:
        """Whether the server has lost its memory since the last session; notes the epoch."""
        before, self.epoch = self.epoch, agreement.epoch
        return before not in (None, agreement.epoch)
