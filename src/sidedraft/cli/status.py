"""`sidedraft status`: what a draft server and its verifiers say of themselves."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from sidedraft.cli.errors import CommandError
from sidedraft.cli.status_data import UNREACHABLE, Status, fetch, read
from sidedraft.cli.status_view import view
from sidedraft.settings import StatusSettings

NAME = "status"
HELP = "show what a draft server and its verifiers do"

WIDE = 200
"""Columns where there is no terminal to ask."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    default = StatusSettings().http
    parser.add_argument(
        "--http", metavar="HOST:PORT", default=default, help=f"of the server (default: {default})"
    )
    parser.add_argument(
        "--watch",
        metavar="SECONDS",
        nargs="?",
        type=float,
        const=1.0,
        help="keep showing it, every so often (default: 1 s), with rates",
    )
    parser.add_argument("--json", action="store_true", help="print what the server sends, as JSON")


def run(args: argparse.Namespace) -> int:
    """Exit status 0 when the server is ready, 1 when it is not or nobody answers."""
    settings = StatusSettings(http=args.http, watch=args.watch, json=args.json)
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = WIDE
    if settings.watch is not None:
        every = settings.watch
        return watch(settings, console, lambda: time.sleep(every))
    body = fetch(settings.http)
    status = read(settings.http, body)
    if settings.json:
        sys.stdout.write(body.decode())
    else:
        console.print(view(status))
    return 0 if status.ready else UNREACHABLE


def watch(settings: StatusSettings, console: Console, rest: Callable[[], None]) -> int:
    """Until interrupted, or until nobody reads any more. A server that goes away is waited for."""
    try:
        if settings.json:
            _print_lines(settings.http, rest)
        elif console.is_terminal:
            with Live(console=console, auto_refresh=False, screen=True) as live:
                _show(settings.http, lambda picture: live.update(picture, refresh=True), rest)
        else:
            _show(settings.http, console.print, rest)
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        # What is buffered would be flushed at exit, into the same pipe.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _show(address: str, show: Callable[[RenderableType], None], rest: Callable[[], None]) -> NoReturn:
    before: Status | None = None
    while True:
        before, picture = _look(address, before)
        show(picture)
        rest()


def _print_lines(address: str, rest: Callable[[], None]) -> NoReturn:
    """The server's JSON, a line each time; or why there is none."""
    while True:
        try:
            line = json.dumps(json.loads(fetch(address)))
        except CommandError as error:
            line = json.dumps({"ready": False, "reason": str(error)})
        print(line, flush=True)
        rest()


def _look(address: str, before: Status | None) -> tuple[Status | None, RenderableType]:
    """The next picture, and the status it shows; None when there is none."""
    try:
        status = read(address, fetch(address))
    except CommandError as error:
        return None, Text(str(error), "red")
    same = before is not None and before.uptime_seconds < status.uptime_seconds
    return status, view(status, before if same else None)
