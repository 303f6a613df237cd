"""One connection as its descriptor shows it, and the watch for messages that never end."""

from __future__ import annotations

import logging
import os

from sidedraft.settings import format_bytes
from sidedraft.transport.base import PeerId
from sidedraft.transport.clients import Client
from sidedraft.transport.zmq.descriptors import bytes_received, identity_of, peer_user, shut_down

_log = logging.getLogger(__name__)


class Connection:
    """Known from its ACCEPTED or CONNECTED event until its DISCONNECTED event."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.peer: PeerId = b""
        """Its id at a listener, known from its first message on."""
        self.ended = ""
        """Why this side ended it; nothing is delivered from it any more."""
        self.client: Client | None = None
        """At a listener with keys: who is at the other end, known from its first message on."""
        self._identity = identity_of(descriptor)
        self._delivered = True
        self._mark = 0

    def delivered(self) -> None:
        """A whole message came from it."""
        self._delivered = True

    def holds(self, key: str) -> bool:
        """Whether it is the connection of this key's holder; of anybody, where there are no keys."""
        return key == ("" if self.client is None else self.client.key)

    def end(self, reason: str) -> None:
        """Shut it down; libzmq reports it disconnected soon after."""
        if not self.ended:
            self.ended = reason
            shut_down(self.descriptor, self._identity)

    def refuse_strangers(self) -> None:
        """End it when another user listens at the ipc address: prompts would be theirs to read.

        A folder that is not there yet, such as the default one under /tmp, could be anybody's.
        """
        user = peer_user(self.descriptor, self._identity)
        if user is not None and user not in (os.geteuid(), 0):
            self.end(f"the server runs as user {user}; expected this user or root")

    def watch(self, limit: int) -> None:
        """End it when more than `limit` bytes arrived since its last whole message.

        libzmq bounds frames and counts whole messages, but gathers the frames of an unfinished message
        without bound. The kernel counts a tcp connection's bytes; it does not count those of ipc, where the
        permissions of the socket file decide who may try.
        """
        received = None if self.ended else bytes_received(self.descriptor, self._identity)
        if received is None:
            return
        if self._delivered:
            # Everything before this moment is forgiven, which saves counting what frames cost on the wire.
            self._delivered = False
            self._mark = received
        elif received - self._mark > limit:
            _log.warning(
                "ended a connection that sent %s without a whole message", format_bytes(received - self._mark)
            )
            self.end("a message without end")
