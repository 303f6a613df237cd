"""Which welcome begins a session, and whether the server is still the one that remembers us."""

from __future__ import annotations

from collections import deque

from sidedraft.wire import messages as m
from sidedraft.wire.agreement import Agreement
from sidedraft.wire.handshake import check_welcome

REMEMBERED = 16
"""Sessions whose late or repeated welcomes are recognised."""


class Greeter:
    """Holds our hello and what came of it."""

    def __init__(self, hello: m.Hello) -> None:
        self.hello = hello
        self.epoch: int | None = None
        """Of the server that welcomed us last."""
        self._seen: deque[int] = deque(maxlen=REMEMBERED)

    def read(self, welcome: m.Welcome) -> Agreement | None:
        """What was agreed; None when this welcome was read before.

        Raises:
            WireError: the server chose what the hello did not offer.
        """
        if welcome.session in self._seen:
            return None
        agreement = check_welcome(self.hello, welcome)
        self._seen.append(welcome.session)
        return agreement

    def is_new_server(self, agreement: Agreement) -> bool:
        """Whether the server has lost its memory since the last session; notes the epoch."""
        before, self.epoch = self.epoch, agreement.epoch
        return before not in (None, agreement.epoch)
