"""`sidedraft COMMAND ...`: finds the command, runs it, and turns what it raises into one line."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from typing import NoReturn, Protocol, cast

import sidedraft
from sidedraft.cli.errors import WRONG_INPUT, CommandError, print_error
from sidedraft.settings import SettingsError

COMMANDS = ("serve", "status", "pack", "generate", "keys", "bench", "train", "demo")
INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells count it."""


class Command(Protocol):
    """What a module `sidedraft.cli.<name>` offers. Importing one is cheap: torch is imported in `run`."""

    NAME: str
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


class _Parser(argparse.ArgumentParser):
    """argparse prints the whole usage before an error; one line is easier to read in a log."""

    def error(self, message: str) -> NoReturn:
        raise CommandError(f"{message} (see `{self.prog} --help`)")


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands; `args.run` is the chosen command's function."""
    parser = _Parser(
        prog="sidedraft",
        description="Speculative decoding with the draft model in a process of its own.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"sidedraft {sidedraft.__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name in COMMANDS:
        command = cast(Command, importlib.import_module(f"sidedraft.cli.{name}"))
        part = commands.add_parser(
            command.NAME, help=command.HELP, description=command.HELP, allow_abbrev=False
        )
        command.add_arguments(part)
        part.set_defaults(run=command.run)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    try:
        args = build_parser().parse_args(argv)
        return int(args.run(args))
    except (CommandError, SettingsError) as error:
        print_error(error)
        return getattr(error, "status", WRONG_INPUT)
    except KeyboardInterrupt:
        print_error("interrupted")
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())
