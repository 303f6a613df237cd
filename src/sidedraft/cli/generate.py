"""`sidedraft generate`: run the reference verifier over prompts."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sidedraft.cli.console import ProgressConsole
from sidedraft.cli.errors import CommandError
from sidedraft.transport.base import TransportError

if TYPE_CHECKING:
    from sidedraft.drafts.configs import DraftConfig
    from sidedraft.integrations.transformers.options import Options
    from sidedraft.integrations.transformers.prompts import Prompt, Text
    from sidedraft.integrations.transformers.report import Report
    from sidedraft.targets.tapped import TappedTarget
    from sidedraft.verifier.drafter import Status

NAME = "generate"
HELP = "continue prompts with a target model, with drafts from a server or without"

CONNECT_WAIT = 2.0
"""Seconds to wait for a session, so that even a short run has drafts from its first step."""

_FLAGS: tuple[tuple[str, type, str, str], ...] = (
    ("connect", str, "ADDRESS", "a server's ipc://PATH or tcp://HOST:PORT; without it, no drafts"),
    ("server-key", str, "FILE", "the server's public key: encrypt, and speak with no other server"),
    ("client-key", str, "FILE", "this verifier's own secret key (see `sidedraft keys`)"),
    ("draft", str, "DIR", "folder of the server's draft; its config.json, and weights for projected rows"),
    ("prompts", str, "FILE", 'a prompt a line; in .jsonl a line is {"prompt": TEXT} or {"ids": [ID, ...]}'),
    ("depth", int, "K", "draft tokens a step (default: the draft's own)"),
    ("max-new-tokens", int, "N", "greatest length of an output (default: 64)"),
    ("temperature", float, "T", "0 is greedy (default: 0)"),
    ("seed", int, "N", "of sampling; it gives the same text with drafts and without (default: 0)"),
    ("batch", int, "N", "prompts run side by side (default: 8)"),
    ("chunk", int, "N", "prompt tokens run in one forward (default: 512)"),
    ("deadline", float, "SECONDS", "wait for a draft at most so long (default: adaptive)"),
    ("namespace", str, "NAME", "verifiers of one namespace share context (default: default)"),
    ("row-formats", str, "NAMES", "preferred formats of context rows, such as projected-fp8,fp8"),
    ("device", str, "NAME", "auto, cpu, cuda or cuda:N (default: auto)"),
    ("dtype", str, "NAME", "auto, float32, bfloat16 or float16 (default: auto)"),
    ("threads", int, "N", "threads to compute with on the CPU (default: torch's choice)"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", metavar="DIR", required=True, help="folder of the target checkpoint")
    parser.add_argument(
        "--prompt",
        metavar="TEXT",
        action="append",
        default=[],
        help="may be repeated; without --prompt and --prompts, lines of standard input are prompts",
    )
    for name, kind, metavar, text in _FLAGS:
        parser.add_argument(f"--{name}", metavar=metavar, type=kind, help=text)
    parser.add_argument("--chat", action="store_true", help="put prompts into the target's chat template")
    parser.add_argument("--ignore-eos", action="store_true", help="go on behind an ending token")
    parser.add_argument("--no-sharing", action="store_true", help="neither find others' context nor be found")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    if (args.connect is None) != (args.draft is None):
        raise CommandError("--connect and --draft go together; without both, there are no drafts")
    if args.threads is not None and args.threads < 1:
        raise CommandError(f"threads: {args.threads} is not allowed; expected at least 1")
    logging.basicConfig(level=logging.WARNING, format="sidedraft: %(message)s")
    try:
        return _run(args)
    except (OSError, ValueError, TransportError) as error:  # of flags, folders, files and prompts
        raise CommandError(str(error)) from error
    except ModuleNotFoundError as error:
        if error.name != "transformers":
            raise
        raise CommandError("transformers is missing; pip install 'sidedraft[transformers]'") from error


def _run(args: argparse.Namespace) -> int:
    # Imported late: torch and transformers take seconds, and a wrong flag needs neither.
    from sidedraft.drafts.configs import read_config
    from sidedraft.integrations.transformers.connect import connect
    from sidedraft.integrations.transformers.loop import generate
    from sidedraft.integrations.transformers.prompts import read_prompts, to_ids
    from sidedraft.settings import VerifierSettings
    from sidedraft.transport.address import for_connecting, parse_address

    if args.connect is not None:
        for_connecting(parse_address(args.connect, open_to_others=args.server_key is not None))
    formats = tuple(args.row_formats.split(",")) if args.row_formats else ()
    settings = VerifierSettings(
        deadline=args.deadline,
        row_formats=formats,
        sharing=not args.no_sharing,
        server_key=args.server_key,
        client_key=args.client_key,
    )
    prompts: list[Prompt] = list(args.prompt)
    if args.prompts is not None:
        prompts += read_prompts(Path(args.prompts))
    elif not prompts:
        prompts += _typed()
    if not prompts:
        raise CommandError("no prompt; expected --prompt TEXT, --prompts FILE or lines on standard input")
    draft = None if args.draft is None else read_config(Path(args.draft))
    options = _options(args, draft)
    target = _load(args, draft)
    if not args.ignore_eos:
        options = _options(args, draft, eos=target.stop_tokens)
    ids, text = to_ids(prompts, Path(args.target), chat=args.chat)
    console = ProgressConsole()
    with ExitStack() as stack:
        stack.callback(console.close)
        drafter = None
        if draft is not None:
            drafter = connect(
                args.connect,
                target,
                Path(args.target),
                draft,
                namespace=args.namespace or "default",
                settings=settings,
                draft_dir=Path(args.draft),
            )
            stack.enter_context(drafter)
            if not drafter.wait_connected(CONNECT_WAIT):
                why = drafter.status().refusal or "no answer yet; drafting begins when there is one"
                print(f"sidedraft: no drafts from {args.connect}: {why}", file=sys.stderr)
        most = len(ids) * options.max_new_tokens
        report = generate(
            target, ids, options, drafter, lambda report: console.progress("tokens", report.new_tokens, most)
        )
        status = None if drafter is None else drafter.status()
    if args.json:
        print(json.dumps(_json(report, text, status)))
    else:
        _print(report, text)
    return 0


def _typed() -> list[str]:
    """Prompts from standard input, so that the command works without any flag for them."""
    if sys.stdin.isatty():
        print("sidedraft: a prompt a line; Ctrl-D ends them", file=sys.stderr)
    return [line.rstrip("\n") for line in sys.stdin if line.strip()]


def _options(args: argparse.Namespace, draft: DraftConfig | None, **more: Any) -> Options:
    from sidedraft.integrations.transformers.options import Options
    from sidedraft.settings import build

    values = {} if draft is None else {"depth": draft.max_depth}
    given = {name: value for name, value in vars(args).items() if value is not None}
    names = Options.__struct_fields__
    return build(Options, values | {name: given[name] for name in names if name in given} | more)


def _load(args: argparse.Namespace, draft: DraftConfig | None) -> TappedTarget:
    from transformers.utils import logging as transformers_logging

    from sidedraft.device.select import resolve_device, resolve_dtype
    from sidedraft.targets.tapped import TappedTarget

    transformers_logging.disable_progress_bar()
    device = resolve_device(args.device or "auto")
    return TappedTarget.load(
        args.target,
        () if draft is None else draft.taps,
        dtype=resolve_dtype(args.dtype or "auto", device),
        device=device,
        threads=args.threads,
    )


def _json(report: Report, text: Text | None, status: Status | None) -> dict[str, Any]:
    found = report.to_json()
    if text is not None:
        for entry in found["generations"]:
            entry["text"] = text.decode(entry["tokens"])
    if status is not None:
        found["server"] = {
            "address": status.address,
            "connected": status.connected,
            "refusal": status.refusal,
        }
        found["counters"] = status.counters
    return found


def _print(report: Report, text: Text | None) -> None:
    for index, one in enumerate(report.generations):
        print(f"[{index}] {one.tokens if text is None else text.decode(one.tokens)}")
    line = f"{report.new_tokens} tokens in {report.seconds:.2f} s, {report.tokens_per_second:.1f} a second"
    if report.acceptance_length:
        line += f"; {report.acceptance_length:.2f} tokens a step with a draft"
    if report.no_draft:
        line += "; no draft: " + ", ".join(f"{count} x {why}" for why, count in report.no_draft.items())
    print(line, file=sys.stderr)
