"""`sidedraft train`: train a small DSpark draft for a target on text the target writes itself."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, get_type_hints

from sidedraft.cli.errors import CommandError
from sidedraft.cli.extras import require

NAME = "train"
HELP = "train a small draft for a target, on the target's own answers to your prompts"

_FLAGS: tuple[tuple[str, str, str], ...] = (
    ("taps", "K,K,...", "aux ids the draft reads (default: 5, spread over the target)"),
    ("layers", "N", "layers of the draft (default: 2)"),
    ("depth", "K", "draft tokens a block (default: 5)"),
    ("markov-rank", "N", "rank of the Markov head (default: 32)"),
    ("draft-vocab", "N", "tokens the draft can propose (default: 6144)"),
    ("steps", "N", "training steps (default: 600)"),
    ("sequences", "N", "answers a step (default: 8)"),
    ("anchors", "N", "anchors an answer and step (default: 16)"),
    ("learning-rate", "X", "greatest learning rate (default: 0.001)"),
    ("seed", "N", "of everything random (default: 0)"),
    ("max-new-tokens", "N", "where answers are cut (default: 150)"),
    ("decode-batch", "N", "prompts answered side by side (default: 32)"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--target", metavar="DIR", required=True, help="folder of the target checkpoint")
    parser.add_argument("--out", metavar="DIR", required=True, help="where the draft goes")
    for name, text in (
        ("prompts", "prompts to train on (docs/training.md has the format); may be given several times"),
        ("held-out", "prompts to measure on only; may be given several times"),
    ):
        parser.add_argument(
            f"--{name}", metavar="FILE", action="extend", nargs="+", required=name == "prompts",
            default=None, help=text,
        )  # fmt: skip
    for name, metavar, text in _FLAGS:
        parser.add_argument(f"--{name}", metavar=metavar, help=text)
    parser.add_argument(
        "--work", metavar="DIR", help="features and state, to resume from (default: OUT.work)"
    )
    parser.add_argument("--report", metavar="FILE", help="write what was measured as JSON")
    parser.add_argument("--threads", metavar="N", type=int, help="CPU threads (default: torch's choice)")


def run(args: argparse.Namespace) -> int:
    from sidedraft.settings import build
    from sidedraft.training.prompts import read_prompts
    from sidedraft.training.recipe import Recipe

    if args.threads is not None and args.threads < 1:
        raise CommandError(f"--threads {args.threads}: expected at least 1")
    given = {name: value for name, value in vars(args).items() if value is not None}
    values: dict[str, Any] = {name: given[name] for name in get_type_hints(Recipe) if name in given}
    if "taps" in values:
        values["taps"] = _taps(values["taps"])
    recipe = build(Recipe, values)
    try:
        training = [read_prompts(Path(path)) for path in args.prompts]
        held_out = [read_prompts(Path(path)) for path in args.held_out or ()]
    except ValueError as error:
        raise CommandError(str(error)) from error
    names = [one.name for one in [*training, *held_out]]
    if len(set(names)) < len(names):
        raise CommandError(f"prompt sets must have names of their own, got {', '.join(names)}")

    require(NAME, "transformers", "transformers")
    from transformers.utils import logging as transformers_logging

    from sidedraft.cli.training_console import TrainingConsole
    from sidedraft.training.run import run as train
    from sidedraft.training.source import open_source

    transformers_logging.disable_progress_bar()
    out = Path(args.out)
    work = Path(args.work) if args.work else out.with_name(out.name + ".work")
    console = TrainingConsole()
    try:
        source = open_source(Path(args.target), recipe, threads=args.threads)
        outcome = train(source, training, held_out, recipe, out=out, work=work, observer=console)
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error
    except KeyboardInterrupt:
        console.close()
        print(f"stopped; the same command continues from {work}")
        raise
    finally:
        console.close()
    if args.report:
        Path(args.report).write_text(json.dumps(outcome.report, indent=2) + "\n")
    console.summary(outcome.report, out)
    return 0


def _taps(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise CommandError(f"--taps {text}: expected aux ids with commas between, such as 2,9,15") from None
