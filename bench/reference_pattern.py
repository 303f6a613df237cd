"""Overhead of a proposal, ours beside the transport pattern of the fork that this project generalises.

The baseline is written from the public description of that pattern. Each statement that it follows has a
number, and the code says at each place which one:

 S1  "Six operations over one REQ/REP socket" (docs/protocol.md, section 12): PING, PROPOSE, RESET, FREE,
     CLEAR, RECONNECT. A proposal needs RESET and PROPOSE; the others carry no rows and are left out.
 S2  "JSON + raw frames": the header is a JSON object, tensors are frames behind it.
 S3  Scalars of the requests stand in the header as lists, one entry a request.
 S4  One frame a tensor.
 S5  "The verifier sends for each request valid_count rows starting at first_position, the anchor token
     (the last one sampled) and anchor_position = last valid position + 1."
 S6  The aux states of accepted positions are gathered, then copied to the host into a reused (pinned)
     buffer; rows are bfloat16.
 S7  "A pinned-copy, blocking transport": the engine's thread sends and waits for the reply itself.
 S8  "RESET (with a position)" opens a request in a slot of the server.
 S9  "server_id in every reply": the verifier compares it; another one means a restart.
 S10 K/V in a slot a request; a rejected token's rows are never sent, so that nothing is undone.
 S11 The reply tells times (`server_*`), and brings the draft tokens as a tensor.
 S12 They are copied to the engine's tensor when they have arrived (`tokens_h2d`).

Where the description is silent the cheaper reading is taken: all taps are one tensor, frames are sent and
received without a copy, slots of a batch lie side by side as one tensor, nothing is
logged or counted, and the server checks sizes only.

Both servers are processes of their own and run the same draft on one thread. Overhead of a proposal is the
verifier's wall time, from the step's rows to draft tokens in an int64 tensor, less what the server says that
writing context rows and the query pass took. Pairs alternate in one run.

    python bench/reference_pattern.py [--pairs N]
"""

from __future__ import annotations

import argparse
import os

os.environ["OMP_NUM_THREADS"] = "1"

import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import torch
import zmq
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.engine import DenseContext

from sidedraft.bench.random_draft import RandomDraft
from sidedraft.cli.server_process import serving
from sidedraft.drafts import load_draft, read_config
from sidedraft.settings import VerifierSettings
from sidedraft.verifier.drafter import Drafter
from sidedraft.verifier.facts import VerifierFacts
from sidedraft.verifier.submission import Submission
from sidedraft.wire.messages import DraftFacts, TargetFacts

BATCH, DEPTH, ACCEPTED, CONTEXT = 8, 7, 3, 256
WIDTHS = {"8B": 4096, "demo": 576}
"""Hidden size of the target, five taps each."""
TRANSPORTS = ("tcp", "ipc")
WARM_UP = 20
PATIENCE = 60.0
"""Seconds until something is given up."""


@dataclass(frozen=True, slots=True)
class Step:
    """What one proposal took, in seconds."""

    total: float
    model: float
    stages: Mapping[str, float] = field(default_factory=dict)
    """By the verifier's names, where it tells them."""

    @property
    def overhead(self) -> float:
        return self.total - self.model


class Side(Protocol):
    """One way to ask for the drafts of a batch."""

    def step(self, rows: Tensor, tokens: Tensor, anchors: list[int], depth: int, drafts: Tensor) -> Step:
        """rows: bfloat16 [B, n, width]; tokens: int64 [B, n], accepted; drafts: int64 [B, depth], filled."""
        ...


class Ours:
    """`Drafter` and `sidedraft serve`."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self._end = 0

    def step(self, rows: Tensor, tokens: Tensor, anchors: list[int], depth: int, drafts: Tensor) -> Step:
        valid = torch.zeros(drafts.shape, dtype=torch.bool)
        started = time.perf_counter()
        pending = self._drafter.submit(
            [
                Submission(request, self._end, tokens[request], anchors[request], depth, rows[request])
                for request in range(len(rows))
            ]
        )
        pending.write_into(drafts, valid)
        total = time.perf_counter() - started
        if not bool(valid.all()):
            raise RuntimeError(f"no draft: {pending.result()}")
        self._end += rows.shape[1]
        times = pending.times
        return Step(total, times["server_ingest"] + times["server_propose"], _split(total, times))


def _split(total: float, times: Mapping[str, float]) -> dict[str, float]:
    """Where the overhead of ours goes; the parts add up to it."""
    model = times["server_ingest"] + times["server_propose"]
    rest = times["server_total"] - times["server_queue"] - model
    return {
        "plan": times["request_plan"],
        "copy": times["context_d2h"],
        "queue": times["server_queue"],
        "answer": rest,
        "wire and threads": times["client_total"] - times["request_plan"] - times["context_d2h"]
        - times["server_total"],
        "wake-up": total - times["client_total"],
    }  # fmt: skip


class ReferencePattern:
    """The verifier's end of the baseline."""

    def __init__(self, socket: zmq.Socket[bytes], batch: int, width: int, most: int) -> None:
        self._socket = socket
        self._staging = torch.empty(batch * most, width, dtype=torch.bfloat16)  # S6: reused
        self._server_id: str | None = None
        self._end = 0
        for slot in range(batch):  # S8
            self._call({"op": "RESET", "request_id": f"request-{slot}", "slot": slot, "position": 0}, [])

    def step(self, rows: Tensor, tokens: Tensor, anchors: list[int], depth: int, drafts: Tensor) -> Step:
        batch, count, width = rows.shape
        started = time.perf_counter()
        staged = self._staging[: batch * count]
        staged.copy_(torch.cat(list(rows)))  # S6
        end = self._end + count
        header = {
            "op": "PROPOSE",
            "request_ids": [f"request-{slot}" for slot in range(batch)],  # S3, and all lists below
            "slots": list(range(batch)),
            "first_positions": [self._end] * batch,  # S5, and the three below
            "valid_counts": [count] * batch,
            "anchor_tokens": anchors,
            "anchor_positions": [end] * batch,
            "num_speculative_tokens": depth,
            "tensors": [{"name": "aux_hidden_states", "dtype": "bfloat16", "shape": [batch * count, width]}],
        }
        reply, frames = self._call(header, [staged.view(torch.uint8).numpy()])  # S4, S7
        [tensor] = reply["tensors"]
        found = torch.frombuffer(frames[0], dtype=torch.int32).view(tensor["shape"])  # S11
        drafts.copy_(found)  # S12
        total = time.perf_counter() - started
        self._end = end
        return Step(total, reply["server_ingest"] + reply["server_propose"])

    def _call(self, header: dict[str, Any], tensors: list[Any]) -> tuple[dict[str, Any], list[memoryview]]:
        frames = [json.dumps(header).encode(), *tensors]  # S2
        self._socket.send_multipart(frames, copy=False)  # S1
        head, *tail = self._socket.recv_multipart(copy=False)  # S7
        reply = json.loads(head.buffer.tobytes())
        if self._server_id not in (None, reply["server_id"]):  # S9
            raise RuntimeError("the server was restarted")
        self._server_id = reply["server_id"]
        return reply, [frame.buffer for frame in tail]


class ReferenceServer:
    """The server's end of the baseline, one operation after the other."""

    def __init__(self, bundle: Path, batch: int, capacity: int) -> None:
        self._draft = load_draft(bundle, None, dtype=torch.float32)
        self._id = f"{os.getpid()}-{time.time_ns()}"
        shape = self._draft.shape
        self._context = DenseContext(shape, batch, capacity, 0, shape.query_rows(DEPTH))  # S10
        self._starts = torch.zeros(batch, dtype=torch.long)
        self._clock = time.perf_counter

    @torch.inference_mode()
    def answer(self, frames: list[zmq.Frame]) -> list[Any]:
        arrived = self._clock()
        header = json.loads(frames[0].buffer.tobytes())
        if header["op"] == "RESET":
            self._context.length = header["position"]
            return [json.dumps({"ok": True, "server_id": self._id, "tensors": []}).encode()]
        [tensor] = header["tensors"]
        if len(frames[1]) != 2 * tensor["shape"][0] * tensor["shape"][1]:
            return [json.dumps({"ok": False, "server_id": self._id, "tensors": []}).encode()]
        aux = torch.frombuffer(frames[1].buffer, dtype=torch.bfloat16).view(tensor["shape"])
        positions = torch.cat(
            [
                torch.arange(first, first + count)
                for first, count in zip(header["first_positions"], header["valid_counts"], strict=True)
            ]
        )
        anchors = torch.tensor(header["anchor_tokens"])
        ends = torch.tensor(header["anchor_positions"])
        begun = self._clock()
        rows = self._draft.context_rows(aux.to(torch.float32), positions)
        self._context.append(rows.view(len(anchors), -1, *rows.shape[1:]))
        ingested = self._clock()
        depth = header["num_speculative_tokens"]
        tokens = self._draft.propose(anchors, ends, depth, self._context).tokens.to(torch.int32)
        proposed = self._clock()
        reply = {
            "ok": True,
            "server_id": self._id,  # S9
            "server_ingest": ingested - begun,  # S11
            "server_propose": proposed - ingested,
            "server_total": proposed - arrived,
            "tensors": [{"name": "draft_tokens", "dtype": "int32", "shape": list(tokens.shape)}],
        }
        return [json.dumps(reply).encode(), tokens.contiguous().numpy()]  # S4


@dataclass(frozen=True, slots=True)
class Row:
    """Medians of one width over one transport, in milliseconds."""

    name: str
    width: int
    transport: str
    pairs: int
    ours: float
    reference: float
    ratio: float
    """Median of the pairs' ratios of overheads."""
    ours_model: float
    reference_model: float
    stages: dict[str, float]
    """Where the overhead of ours goes."""


def measure(pairs: int) -> list[Row]:
    torch.set_num_threads(1)
    return [_compare(name, hidden, kind, pairs) for name, hidden in WIDTHS.items() for kind in TRANSPORTS]


def _compare(name: str, hidden: int, transport: str, pairs: int) -> Row:
    width = 5 * hidden
    with tempfile.TemporaryDirectory(prefix="sidedraft-") as home:
        bundle = RandomDraft(target_hidden_size=hidden).write(Path(home) / "bundle")
        capacity = CONTEXT + ACCEPTED * (pairs + WARM_UP)
        with _ours(bundle, transport) as drafter, _reference(bundle, transport, capacity, home) as socket:
            sides: tuple[Side, Side] = (Ours(drafter), ReferencePattern(socket, BATCH, width, CONTEXT))
            found = _alternate(sides, width, pairs)
    ours, reference = zip(*found, strict=True)
    return Row(
        name, width, transport, pairs,
        ours=_median(step.overhead for step in ours),
        reference=_median(step.overhead for step in reference),
        ratio=statistics.median(one.overhead / other.overhead for one, other in found),
        ours_model=_median(step.model for step in ours),
        reference_model=_median(step.model for step in reference),
        stages={name: _median(step.stages[name] for step in ours) for name in ours[0].stages},
    )  # fmt: skip


def _alternate(sides: tuple[Side, Side], width: int, pairs: int) -> list[tuple[Step, Step]]:
    """Both fill the same context, then step by turns with the same rows."""
    generator = torch.Generator().manual_seed(0)
    ours, reference = sides
    found: list[tuple[Step, Step]] = []
    drafts = {side: torch.zeros(BATCH, DEPTH, dtype=torch.long) for side in sides}
    for turn in range(-1 - WARM_UP, pairs):
        count = CONTEXT if turn < -WARM_UP else ACCEPTED
        rows = torch.randn(BATCH, count, width, generator=generator).bfloat16()
        tokens = torch.randint(1, 1000, (BATCH, count), generator=generator)
        anchors = torch.randint(1, 1000, (BATCH,), generator=generator).tolist()
        taken = {}
        for side in (ours, reference) if turn % 2 else (reference, ours):
            taken[side] = side.step(rows, tokens, anchors, DEPTH, drafts[side])
        if turn >= 0:
            found.append((taken[ours], taken[reference]))
    return found


@contextlib.contextmanager
def _ours(bundle: Path, transport: str) -> Iterator[Drafter]:
    bind = "tcp://127.0.0.1:0" if transport == "tcp" else None
    config = read_config(bundle)
    facts = VerifierFacts(
        target=TargetFacts(
            taps=config.taps, hidden_size=config.target_hidden_size, vocab_size=config.target_vocab_size
        ),
        draft=DraftFacts(family=config.family, layout=config.layout.value, max_depth=config.max_depth),
        max_position=config.backbone.max_position - 1,
        row_formats=("bf16",),
    )
    with serving(bundle, None, ("--threads", "1", "--kv-memory", "256MiB"), bind) as server:
        server.wait_ready(PATIENCE)
        settings = VerifierSettings(deadline=PATIENCE, late_lost=PATIENCE)
        with Drafter(server.address, facts, settings) as drafter:
            if not drafter.wait_connected(PATIENCE):
                raise RuntimeError(drafter.status().refusal)
            yield drafter


@contextlib.contextmanager
def _reference(bundle: Path, transport: str, capacity: int, home: str) -> Iterator[zmq.Socket[bytes]]:
    address = "tcp://127.0.0.1:*" if transport == "tcp" else f"ipc://{home}/reference.sock"
    command = [sys.executable, __file__, "--serve", str(bundle), address, str(capacity)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        with zmq.Context() as context, context.socket(zmq.REQ) as socket:  # S1
            socket.linger = 0
            socket.rcvtimeo = int(PATIENCE * 1000)
            socket.connect(process.stdout.readline().strip())
            yield socket
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def _serve(bundle: str, address: str, capacity: str) -> None:
    torch.set_num_threads(1)
    server = ReferenceServer(Path(bundle), BATCH, int(capacity))
    with zmq.Context() as context, context.socket(zmq.REP) as socket:  # S1
        socket.linger = 0
        socket.rcvtimeo = int(PATIENCE * 1000)  # should the parent die
        socket.bind(address)
        print(socket.getsockopt_string(zmq.LAST_ENDPOINT), flush=True)
        with contextlib.suppress(zmq.Again):
            while True:
                socket.send_multipart(server.answer(socket.recv_multipart(copy=False)), copy=False)


def _median(seconds: Any) -> float:
    return statistics.median(seconds) * 1e3


def table(rows: list[Row]) -> str:
    """Markdown, milliseconds."""
    lines = [
        "| rows | transport | reference | ours | ours / reference | model: reference | model: ours |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| 5 x {row.width // 5} | {row.transport} | {row.reference:.2f} | {row.ours:.2f} | {row.ratio:.2f} "
        f"| {row.reference_model:.2f} | {row.ours_model:.2f} |"
        for row in rows
    ]
    return "\n".join(lines)


def stages(rows: list[Row]) -> str:
    """Markdown, milliseconds."""
    names = list(rows[0].stages)
    lines = ["| ours | transport | " + " | ".join(names) + " |", "|---|---|" + "---:|" * len(names)]
    for row in rows:
        figures = " | ".join(f"{row.stages[name]:.2f}" for name in names)
        lines.append(f"| 5 x {row.width // 5} | {row.transport} | {figures} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--serve", nargs=3, metavar=("BUNDLE", "ADDRESS", "ROWS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        _serve(*options.serve)
        return
    print(
        f"Overhead of a proposal in ms: batch {BATCH}, depth {DEPTH}, {ACCEPTED} rows a request, bfloat16\n"
    )
    rows = measure(options.pairs)
    print(table(rows))
    print("\nwhere the overhead of ours goes:\n\n" + stages(rows))
    print(f"\nmedians of {options.pairs} interleaved pairs; the ratio is the median of the pairs' ratios")


if __name__ == "__main__":
    main()
