"""`sidedraft bench`: what a draft server costs its verifiers, here and now."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from sidedraft.cli.console import ProgressConsole
from sidedraft.cli.errors import CommandError
from sidedraft.settings import BenchSettings, SettingsError, StatusSettings, VerifierSettings, build

if TYPE_CHECKING:
    from sidedraft.bench.plan import Plan
    from sidedraft.bench.run import Place

NAME = "bench"
HELP = "measure a draft server: round trips, ingest, proposals, overlap"

START_SECONDS = 90.0
"""What a server may take to load and test a draft on a busy machine."""
PATIENCE = 60.0
"""Seconds until a proposal is given up: a slow server is measured, not refused."""

SERVER_FLAGS = ("--threads", "1", "--kv-memory", "256MiB")

_FLAGS: tuple[tuple[str, str, str], ...] = (
    ("connect", "ADDRESS", "a running server's; without it a server is started"),
    (
        "http",
        "HOST:PORT",
        "of the running server's status, which tells what it serves (default: as `status`)",
    ),
    ("draft", "DIR", "folder of the draft; with --connect it stands in for the status"),
    ("target", "DIR", "folder of the target"),
    ("bundle", "DIR", "a folder made by `sidedraft pack`, instead of --draft and --target"),
    ("server-key", "FILE", "the running server's public key"),
    ("client-key", "FILE", "our own secret key (see `sidedraft keys`)"),
    ("namespace", "NAME", "one that the server lets us use (default: default); nothing is shared in it"),
    ("rounds", "N", "samples of each latency (default: 100)"),
)
_LISTS: tuple[tuple[str, str, str], ...] = (
    ("row-formats", "NAME,...", "of the ingest; the first is the one of the other measures (default: all)"),
    ("contexts", "N,...", "rows of context (default: 128,1024)"),
    ("batches", "N,...", "requests a step (default: 1,8)"),
    ("depths", "K,...", "draft tokens (default: 1 and the draft's greatest)"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name, metavar, text in (*_FLAGS, *_LISTS):
        parser.add_argument(f"--{name}", metavar=metavar, help=text)
    for name, text in (
        ("insecure-plain-text", "connect to another host without encryption"),
        ("quick", "fewer sizes and samples: seconds instead of minutes"),
        ("json", "print one JSON object"),
    ):
        parser.add_argument(f"--{name}", action="store_const", const=True, help=text)


def read_settings(args: argparse.Namespace) -> BenchSettings:
    """Raises `SettingsError`."""
    names = BenchSettings.__struct_fields__
    values: dict[str, Any] = {
        name: value for name, value in vars(args).items() if name in names and value is not None
    }
    for flag, *_ in _LISTS:
        name = flag.replace("-", "_")
        if name in values:
            values[name] = _list(name, values[name])
    return build(BenchSettings, values)


def _list(name: str, text: str) -> list[Any]:
    words = [word.strip() for word in text.split(",")]
    if name == "row_formats":
        return words
    try:
        return [int(word) for word in words]
    except ValueError:
        raise SettingsError(name, text, "counts of at least 1, with commas between them") from None


def run(args: argparse.Namespace) -> int:
    settings = read_settings(args)
    patience = VerifierSettings(
        deadline=PATIENCE,
        late_lost=PATIENCE,
        server_key=settings.server_key,
        client_key=settings.client_key,
        insecure_plain_text=settings.insecure_plain_text,
    )
    logging.basicConfig(level=logging.ERROR, format="sidedraft: %(message)s")
    # An ordinary kill ends this process like Ctrl-C, so that servers and sessions are ended in good order.
    signal.signal(signal.SIGTERM, _interrupt)
    console = ProgressConsole()
    try:
        found = _run(settings, patience, console)
    finally:
        console.close()
    if settings.json:
        print(json.dumps(found))
    else:
        from sidedraft.cli.bench_view import print_report

        print_report(found)
    return 0


def _run(settings: BenchSettings, patience: VerifierSettings, console: ProgressConsole) -> dict[str, Any]:
    # Imported late: torch takes seconds, and a wrong flag does not need it.
    import torch

    from sidedraft.bench.errors import BenchError
    from sidedraft.bench.report import Report
    from sidedraft.bench.run import Run
    from sidedraft.drafts import CheckpointError
    from sidedraft.transport.base import TransportError
    from sidedraft.wire.rows import KINDS

    unknown = [kind for kind in settings.row_formats if kind not in KINDS]
    if unknown:
        raise SettingsError("row_formats", unknown[0], f"one of {', '.join(KINDS)}")
    plan = _plan(settings)
    torch.set_num_threads(1)
    try:
        with ExitStack() as stack:
            places, draft = stack.enter_context(_places(settings, console))
            report = Report(
                server="own" if settings.connect is None else "running", draft=draft, rounds=plan.rounds
            )
            Run(
                places=places,
                kinds=settings.row_formats or _in_order(KINDS),
                plan=plan,
                settings=patience,
                namespace=settings.namespace,
                polite=settings.connect is not None,
            ).measure(report, lambda name: lambda done, total: console.progress(name, done, total))
            return report.to_json()
    except (BenchError, CheckpointError, TransportError, OSError, ValueError) as error:
        raise CommandError(str(error), getattr(error, "status", 1)) from error


def _in_order(kinds: tuple[str, ...]) -> tuple[str, ...]:
    """bf16 first: what most targets compute in."""
    return tuple(sorted(kinds, key=lambda kind: kind != "bf16"))


def _plan(settings: BenchSettings) -> Plan:
    from dataclasses import replace

    from sidedraft.bench.plan import FULL, QUICK

    plan = QUICK if settings.quick else FULL
    return replace(
        plan,
        rounds=settings.rounds or plan.rounds,
        contexts=settings.contexts or plan.contexts,
        batches=settings.batches or plan.batches,
        depths=settings.depths,
    )


@contextmanager
def _places(settings: BenchSettings, console: ProgressConsole) -> Iterator[tuple[list[Place], str]]:
    """Where to measure, and which draft in words."""
    from sidedraft.bench.run import Place
    from sidedraft.bench.served import from_folder

    target = None if settings.target is None else Path(settings.target)
    folder = settings.bundle or settings.draft
    if settings.connect is not None:
        transport = settings.connect.partition("://")[0]
        served = _told(settings) if folder is None else from_folder(Path(folder), target)
        yield [Place(transport=transport, address=settings.connect, served=served)], served.draft.family
        return
    with ExitStack() as stack:
        name = folder
        if folder is None:
            from sidedraft.bench.random_draft import RandomDraft

            home = stack.enter_context(tempfile.TemporaryDirectory(prefix="sidedraft-"))
            sizes = RandomDraft()
            folder = str(sizes.write(Path(home) / "bundle"))
            name = f"random weights, rows of {sizes.taps} x {sizes.target_hidden_size}"
        served = from_folder(Path(folder), target)
        yield _own(stack, Path(folder), target, served, console), name or ""


def _own(
    stack: ExitStack, folder: Path, target: Path | None, served: Any, console: ProgressConsole
) -> list[Place]:
    """Two servers of the same draft, one a transport."""
    from sidedraft.bench.run import Place
    from sidedraft.cli.server_process import serving

    binds = {"ipc": None, "tcp": "tcp://127.0.0.1:0"}
    servers = {
        transport: stack.enter_context(serving(folder, target, SERVER_FLAGS, bind))
        for transport, bind in binds.items()
    }
    for done, server in enumerate(servers.values()):
        console.progress("starting servers", done, len(servers))
        server.wait_ready(START_SECONDS)
    console.progress("starting servers", len(servers), len(servers))
    return [
        Place(transport=transport, address=server.address, served=served)
        for transport, server in servers.items()
    ]


def _told(settings: BenchSettings) -> Any:
    """What the running server says that it serves."""
    from sidedraft.bench.served import from_status
    from sidedraft.cli.status_data import fetch

    return from_status(fetch(settings.http or StatusSettings().http))


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
