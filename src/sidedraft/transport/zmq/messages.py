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
    if _try_send(socket, frames, copy):
        return True
    catch_up(socket)  # the queue may have room by now
    return _try_send(socket, frames, copy)


def catch_up(socket: zmq.Socket[Any]) -> None:
    """Make a socket act on what libzmq's I/O thread has reported: pipes that opened, ended or have room.

    While it is busy it looks at most once a millisecond by itself, so that it may still send into the pipe
    of a connection that is known to be gone.
    """
    socket.getsockopt(zmq.SocketOption.EVENTS)


def _try_send(socket: zmq.Socket[Any], frames: Sequence[Frame], copy: bool) -> bool:
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


def descriptor_of(frame: zmq.Frame) -> int:
    """The descriptor of the connection that a frame came by; -1 when it is not known (ZMTP 1 and 2)."""
    try:
        return int(frame.get(zmq.MessageOption.SRCFD))
    except zmq.ZMQError:
        return -1
