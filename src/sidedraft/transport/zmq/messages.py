"""Whole messages into and out of a socket, without blocking and without copying what is received."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import zmq

from sidedraft.transport.base import Frame


def send_message(socket: zmq.Socket[Any], frames: Sequence[Frame], *, copy: bool = True) -> bool:
    """Queue one message; False when there is no connection to take it, or its queue is full.

    libzmq decides at the first frame; the others of the same message then find room.
    """
    try:
        socket.send_multipart(frames, zmq.Flag.DONTWAIT, copy=copy, track=False)
    except zmq.ZMQError as error:
        if error.errno in (zmq.EAGAIN, zmq.EHOSTUNREACH):
            return False
        raise
    return True


def receive_message(socket: zmq.Socket[Any], keep: int) -> list[zmq.Frame] | None:
    """The next message, None when there is none.

    Of a message with more than `keep` frames one more is returned, so that the caller sees the excess, and
    the rest is thrown away unseen. The frames own the memory that libzmq received into.
    """
    try:
        frame = socket.recv(zmq.Flag.DONTWAIT, copy=False, track=False)
    except zmq.Again:
        return None
    frames = [frame]
    while frame.more:
        # libzmq hands out whole messages only: the rest is there.
        frame = socket.recv(zmq.Flag.DONTWAIT, copy=False, track=False)
        if len(frames) <= keep:
            frames.append(frame)
    return frames
