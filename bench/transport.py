"""Round trips of the transport beside raw pyzmq.

One request with a payload goes up, a 64-byte answer comes down, as with a proposal's rows and tokens. The
baseline is a bare DEALER and ROUTER of pyzmq with default options and blocking calls, receiving without a
copy as we do; its server is a process of its own, as ours is. Rounds of both alternate in one run, so that
what else the machine does hits both.

    python bench/transport.py [--rounds N]
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import zmq

from sidedraft.settings import KIB, MIB
from sidedraft.transport.base import Connected, Lane, Received
from sidedraft.transport.zmq import ZmqChannel, ZmqListener

SIZES = (1 * KIB, 64 * KIB, 256 * KIB, 1 * MIB)
HEADER = bytes(200)
ANSWER = bytes(64)
IDLE = 60.0
"""Seconds after which a server that nobody asks ends, should this process die."""


@dataclass(frozen=True)
class Row:
    """Times of one payload size over one transport, in microseconds."""

    transport: str
    size: int
    rounds: int
    raw_p50: float
    ours_p50: float
    raw_p99: float
    ours_p99: float
    memcpy: float

    @property
    def added(self) -> float:
        """What our median costs over the baseline's."""
        return self.ours_p50 - self.raw_p50


def measure(rounds: int) -> list[Row]:
    """All sizes over ipc and tcp, `rounds` round trips each and of each kind."""
    rows = []
    for transport in ("ipc", "tcp"):
        with _ours(transport) as ours, _raw(transport) as raw:
            rows += [_compare(transport, size, rounds, raw, ours) for size in SIZES]
    return rows


def _compare(
    transport: str, size: int, rounds: int, raw: Callable[[bytes], None], ours: Callable[[bytes], None]
) -> Row:
    payload = bytes(size)
    times: dict[Callable[[bytes], None], list[float]] = {raw: [], ours: []}
    warm_up = max(10, rounds // 10)
    for turn in range(warm_up + rounds):
        for round_trip in (raw, ours) if turn % 2 else (ours, raw):
            started = time.perf_counter()
            round_trip(payload)
            if turn >= warm_up:
                times[round_trip].append((time.perf_counter() - started) * 1e6)
    p50 = {kind: statistics.median(taken) for kind, taken in times.items()}
    p99 = {kind: sorted(taken)[int(0.99 * rounds)] for kind, taken in times.items()}
    return Row(transport, size, rounds, p50[raw], p50[ours], p99[raw], p99[ours], _memcpy(payload))


def _memcpy(payload: bytes) -> float:
    """Median time of one copy of the payload."""
    target = bytearray(len(payload))
    times = []
    for _ in range(200):
        started = time.perf_counter()
        target[:] = payload
        times.append((time.perf_counter() - started) * 1e6)
    return statistics.median(times)


@contextlib.contextmanager
def _server(kind: str, transport: str) -> Iterator[str]:
    """The other process; gives its address."""
    with tempfile.TemporaryDirectory(prefix="sidedraft-") as folder:
        address = f"ipc://{folder}/bench.sock" if transport == "ipc" else "tcp://127.0.0.1:0"
        command = [sys.executable, __file__, "--serve", kind, address]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


@contextlib.contextmanager
def _ours(transport: str) -> Iterator[Callable[[bytes], None]]:
    with _server("ours", transport) as address:
        channel = ZmqChannel(address)
        up: set[Lane] = set()
        while len(up) < len(Lane):
            up |= {event.lane for event in channel.poll(1.0) if isinstance(event, Connected)}

        def round_trip(payload: bytes) -> None:
            if not channel.send(Lane.CONTROL, [HEADER, payload]):
                raise RuntimeError("the message was not taken")
            while not any(isinstance(event, Received) for event in channel.poll(IDLE)):
                pass

        try:
            yield round_trip
        finally:
            channel.close()


@contextlib.contextmanager
def _raw(transport: str) -> Iterator[Callable[[bytes], None]]:
    with _server("raw", transport) as address, zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.connect(address)

        def round_trip(payload: bytes) -> None:
            dealer.send_multipart([HEADER, payload])
            dealer.recv_multipart(copy=False)

        yield round_trip


def _serve_ours(address: str) -> None:
    listener = ZmqListener(address)
    print(listener.address, flush=True)
    while events := listener.poll(IDLE):
        for event in events:
            if isinstance(event, Received):
                listener.send(event.peer, event.lane, [ANSWER])
    listener.close()


def _serve_raw(address: str) -> None:
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.linger = 0
        router.rcvtimeo = int(IDLE * 1000)
        router.bind(address)
        print(router.getsockopt_string(zmq.LAST_ENDPOINT), flush=True)
        with contextlib.suppress(zmq.Again):
            while True:
                peer = router.recv_multipart(copy=False)[0]
                router.send_multipart([peer, ANSWER])


def table(rows: list[Row]) -> str:
    """Markdown, microseconds."""
    lines = [
        "| transport | payload | raw p50 | ours p50 | added | memcpy | raw p99 | ours p99 |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {row.transport} | {row.size // KIB} KiB | {row.raw_p50:.0f} | {row.ours_p50:.0f} "
        f"| {row.added:+.0f} | {row.memcpy:.0f} | {row.raw_p99:.0f} | {row.ours_p99:.0f} |"
        for row in rows
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=1000, help="round trips of each kind and size")
    parser.add_argument("--serve", nargs=2, metavar=("KIND", "ADDRESS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        kind, address = options.serve
        (_serve_ours if kind == "ours" else _serve_raw)(address)
        return
    print(f"Round trips in us, {options.rounds} of each kind and size, pyzmq {zmq.__version__}\n")
    print(table(measure(options.rounds)))


if __name__ == "__main__":
    main()
