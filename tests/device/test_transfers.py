"""Copies beside a device's other work: what waits for what, on a stand-in for torch.cuda that keeps a log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from sidedraft.device import CpuRuntime, CudaTransfers, runtime_for

GPU = torch.device("cuda", 0)


class Log:
    """What torch.cuda has of streams and events; nothing runs, everything is written down."""

    def __init__(self) -> None:
        self.lines: list[tuple[Any, ...]] = []
        log = self

        class Stream:
            def __init__(self, device: torch.device) -> None:
                self.name = "main" if not hasattr(log, "main") else "copies"

            def wait_stream(self, other: Stream) -> None:
                log.lines.append((self.name, "after stream", other.name))

            def wait_event(self, event: Any) -> None:
                log.lines.append((self.name, "after event", event))

        class Event:
            done = False

            def record(self, stream: Stream) -> None:
                log.lines.append((stream.name, "mark"))

            def query(self) -> bool:
                return self.done

            def synchronize(self) -> None:
                log.lines.append(("host", "waits"))

        self.Stream, self.Event = Stream, Event
        self.main = Stream(GPU)

    def current_stream(self, device: torch.device) -> Any:
        assert device == GPU
        return self.main

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        self.lines.append((stream.name, "enter"))
        yield
        self.lines.append((stream.name, "leave"))


def test_copies_run_after_the_engines_work_and_before_what_it_does_next_and_the_host_waits_for_nothing() -> (
    None
):
    log = Log()
    transfers = CudaTransfers(GPU, log)
    host = torch.zeros(3)
    with transfers.beside():
        transfers.copy(torch.ones(3), host)
        mark = transfers.mark()
    assert host.tolist() == [1, 1, 1]
    assert log.lines == [
        ("copies", "after stream", "main"),
        ("copies", "enter"),
        ("copies", "mark"),
        ("copies", "leave"),
        ("main", "after stream", "copies"),
    ]
    assert not mark.reached()
    mark.wait()
    assert log.lines[-1] == ("host", "waits")


def test_with_an_event_they_wait_for_that_only() -> None:
    log = Log()
    transfers = CudaTransfers(GPU, log)
    event = log.Event()
    assert transfers.orders(event)
    assert transfers.orders(None)
    assert not transfers.orders(object())
    with transfers.beside(event):
        pass
    assert log.lines[0] == ("copies", "after event", event)


def test_an_error_inside_leaves_the_streams_ordered() -> None:
    log = Log()
    with pytest.raises(RuntimeError), CudaTransfers(GPU, log).beside():
        raise RuntimeError("device lost")
    assert log.lines[-1] == ("main", "after stream", "copies")


def test_host_memory_needs_no_transfers() -> None:
    assert CpuRuntime().transfers() is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_on_a_gpu_the_source_may_be_overwritten_at_once() -> None:
    runtime = runtime_for(GPU)
    transfers = runtime.transfers()
    assert transfers is not None
    source = torch.arange(1 << 22, device=GPU, dtype=torch.float32)
    host = runtime.host_buffer(1 << 22, dtype=torch.float32)
    with transfers.beside():
        transfers.copy(source, host)
        mark = transfers.mark()
    source.fill_(-1)
    mark.wait()
    assert torch.equal(host, torch.arange(1 << 22, dtype=torch.float32))
