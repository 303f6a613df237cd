"""The server's end over ZeroMQ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import zmq

from sidedraft.settings import WireLimits
from sidedraft.transport.address import for_binding, parse_address
from sidedraft.transport.base import Event, Frame, Lane, PeerId, TransportError, check_frames
from sidedraft.transport.clients import Client, ClientList
from sidedraft.transport.keys import KeyPair
from sidedraft.transport.zmq.binding import bind
from sidedraft.transport.zmq.curve import check_curve
from sidedraft.transport.zmq.gate import Gate
from sidedraft.transport.zmq.options import UNDELIVERED_LIMIT
from sidedraft.transport.zmq.pump import Pump
from sidedraft.transport.zmq.router_lane import RouterLane
from sidedraft.transport.zmq.routing_ids import seed_routing_ids


class ZmqListener:
    """A `base.Listener`. A peer is known, and `Connected` reported, from its first message on.

    Args:
        address: where to listen, see `transport.address`; tcp port 0 chooses one. A bad one raises
            AddressError, one that is in use or not permitted TransportError.
        limits: greatest frames to receive; a peer that announces a greater one is disconnected.
        insecure_plain_text: allow an address that other hosts can reach, without encryption.
        keys: this server's own, and who may come in; the list is read again when its file changes. Everything
            is encrypted then, and whoever is not in the list, or no more, has no connection.
        undelivered_limit: bytes a tcp connection may bring without completing a message.
    """

    def __init__(
        self,
        address: str,
        limits: WireLimits = WireLimits(),  # noqa: B008 - frozen
        *,
        insecure_plain_text: bool = False,
        keys: tuple[KeyPair, ClientList] | None = None,
        undelivered_limit: int = UNDELIVERED_LIMIT,
    ) -> None:
        open_to_others = insecure_plain_text or keys is not None
        where = for_binding(parse_address(address, open_to_others=open_to_others))
        seed_routing_ids()
        context: zmq.Context[zmq.Socket[Any]] = zmq.Context()
        self._gate: Gate | None = None
        own = None
        try:
            if keys is not None:
                check_curve()
                own, clients = keys
                self._gate = Gate(context, clients)
            self._lanes = {
                lane: RouterLane(context, lane, where, limits, undelivered_limit, own, self._gate)
                for lane in Lane
            }
            self._bound = bind({lane: self._lanes[lane].socket for lane in Lane}, where)
        except BaseException:
            context.destroy(linger=0)
            raise
        self.address = str(self._bound.address)
        name = f"listener at {self.address}"
        if self._gate is not None:
            self._gate.name = name
        self._pump = Pump(context, list(self._lanes.values()), name, self._gate)

    def send(self, peer: PeerId, lane: Lane, frames: Sequence[Frame]) -> bool:
        """See `base.Listener`."""
        check_frames(frames)
        self._pump.check_open()
        try:
            return self._lanes[lane].send(peer, frames)
        except zmq.ZMQError as error:
            raise TransportError(f"listener at {self.address}: {error}") from error

    def poll(self, timeout: float) -> list[Event]:
        """See `base.Listener`. The frames received own their memory; keep them as long as needed."""
        if self._gate is not None and self._gate.changed():
            for lane in self._lanes.values():
                lane.check_clients()
        return self._pump.poll(timeout)

    def client(self, peer: PeerId, lane: Lane) -> Client | None:
        """See `base.Listener`."""
        return self._lanes[lane].client(peer)

    def wake(self) -> None:
        self._pump.wake()

    def drop(self, peer: PeerId, lane: Lane) -> None:
        """End a peer's connection: it sees it closed; nothing is delivered from it but its `Disconnected`."""
        self._lanes[lane].drop(peer, "dropped")

    def close(self) -> None:
        """Does not wait: what libzmq has not sent by now is lost. Removes the socket files."""
        self._pump.close()
        self._bound.close()
