"""The transport over ZeroMQ: a DEALER and a ROUTER for each lane, over ipc and loopback tcp."""

from sidedraft.transport.zmq.channel import ZmqChannel
from sidedraft.transport.zmq.listener import ZmqListener

__all__ = ["ZmqChannel", "ZmqListener"]
