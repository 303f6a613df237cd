"""`sidedraft pack`: a folder that serves without the target."""

from __future__ import annotations

import argparse
from pathlib import Path

from sidedraft.cli.console import ProgressConsole
from sidedraft.cli.errors import CommandError
from sidedraft.settings import format_bytes

NAME = "pack"
HELP = "put a draft and what it needs of its target into one folder"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--draft", metavar="DIR", required=True, help="folder of the draft checkpoint")
    parser.add_argument("--target", metavar="DIR", required=True, help="folder of the target")
    parser.add_argument(
        "-o", "--output", metavar="BUNDLE", required=True, help="the folder to write; must not exist yet"
    )


def run(args: argparse.Namespace) -> int:
    from sidedraft.drafts import CheckpointError, pack

    output = Path(args.output)
    console = ProgressConsole()
    try:
        config = pack(
            Path(args.draft),
            Path(args.target),
            output,
            progress=lambda done, total: console.progress("reading", done, total),
        )
    except (CheckpointError, OSError) as error:
        raise CommandError(str(error)) from error
    finally:
        console.close()
    size = sum(file.stat().st_size for file in output.iterdir())
    print(f"{output}: {config.family} draft with its embedding and head, {format_bytes(size)}")
    print(f"serve it with: sidedraft serve --bundle {output}")
    return 0
