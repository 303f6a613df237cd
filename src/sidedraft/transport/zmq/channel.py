"""The verifier's end over ZeroMQ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import zmq

from sidedraft.settings import WireLimits
from sidedraft.transport.address import for_connecting, parse_address
from sidedraft.transport.base import Event, Frame, Lane, TransportError, check_frames
from sidedraft.transport.keys import VerifierKeys
from sidedraft.transport.zmq.curve import check_curve
from sidedraft.transport.zmq.dealer_lane import DealerLane
from sidedraft.transport.zmq.options import UNDELIVERED_LIMIT
from sidedraft.transport.zmq.pump import Pump


class ZmqChannel:
    """A `base.Channel`. Returns at once, whether or not a server is there, and connects in the background.

    Args:
        address: of the server, see `transport.address`; a bad one raises AddressError.
        limits: greatest frames to receive.
        insecure_plain_text: allow a server on another host, without encryption.
        keys: encrypt everything, and speak only with the server that has the secret of `keys.server`.
        undelivered_limit: bytes a tcp connection may bring without completing a message.
    """

    def __init__(
        self,
        address: str,
        limits: WireLimits = WireLimits(),  # noqa: B008 - frozen
        *,
        insecure_plain_text: bool = False,
        keys: VerifierKeys | None = None,
        undelivered_limit: int = UNDELIVERED_LIMIT,
    ) -> None:
        open_to_others = insecure_plain_text or keys is not None
        where = for_connecting(parse_address(address, open_to_others=open_to_others))
        if keys is not None:
            check_curve()
        self.address = str(where)
        context: zmq.Context[zmq.Socket[Any]] = zmq.Context()
        self._lanes: dict[Lane, DealerLane] = {}
        try:
            for lane in Lane:
                self._lanes[lane] = DealerLane(context, lane, where, limits, undelivered_limit, keys)
        except zmq.ZMQError as error:
            context.destroy(linger=0)
            raise TransportError(f"address {address}: cannot connect: {error}") from error
        self._pump = Pump(context, list(self._lanes.values()), f"channel to {self.address}")

    def send(self, lane: Lane, frames: Sequence[Frame], *, copy: bool = True) -> bool:
        """See `base.Channel`. With `copy=False` frames above 64 kB are read by libzmq after the return: leave
        them as they are until the server has said that it has them."""
        check_frames(frames)
        self._pump.check_open()
        try:
            return self._lanes[lane].send(frames, copy=copy)
        except zmq.ZMQError as error:
            raise TransportError(f"channel to {self.address}: {error}") from error

    def poll(self, timeout: float) -> list[Event]:
        """See `base.Channel`. The frames received own their memory; keep them as long as needed."""
        return self._pump.poll(timeout)

    def wake(self) -> None:
        self._pump.wake()

    def close(self) -> None:
        """Does not wait: what libzmq has not sent by now is lost."""
        self._pump.close()
