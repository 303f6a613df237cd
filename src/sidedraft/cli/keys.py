"""`sidedraft keys`: make and show the keys that encrypt a connection and say who is at its other end."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from sidedraft.cli.errors import CommandError

NAME = "keys"
HELP = "make the keys of a server or of a verifier, or show a public key"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    server = actions.add_parser("server", help="make a server's keys: NAME.secret and NAME.public")
    server.add_argument("name", metavar="NAME", nargs="?", default="server", help="(default: server)")
    client = actions.add_parser(
        "client", help="make a verifier's keys, and print its line for the server's list of clients"
    )
    client.add_argument("name", metavar="NAME", help="what the server is to call it")
    client.add_argument(
        "--namespace",
        dest="namespaces",
        metavar="NAME",
        action="append",
        default=[],
        help="a namespace it may use; may be given several times (default: one of its own name)",
    )
    for part in (server, client):
        part.add_argument("--out", metavar="DIR", default=".", help="folder for the files (default: here)")
    show = actions.add_parser("show", help="print the public key of a file of either kind")
    show.add_argument("file", metavar="FILE")


def run(args: argparse.Namespace) -> int:
    from sidedraft.transport.keys import KeyFileError

    try:
        if args.action == "show":
            _show(Path(args.file))
        else:
            _make(args)
    except KeyFileError as error:
        raise CommandError(str(error)) from error
    return 0


def _show(path: Path) -> None:
    from sidedraft.transport.keys import read_public

    print(read_public(path))


def _make(args: argparse.Namespace) -> None:
    from sidedraft.transport.clients import client_line
    from sidedraft.transport.keys import write_pair

    # The line is made first: names that the list could not hold make no files.
    namespaces = tuple(args.namespaces) if args.action == "client" else ()
    if args.action == "client":
        client_line(args.name, "", namespaces)
    pair, secret, public = write_pair(Path(args.out), args.name)
    print(f"wrote {secret} (keep it to yourself) and {public}", file=sys.stderr)
    if args.action == "client":
        print("the line for the file that the server's --clients names:", file=sys.stderr)
        print(client_line(args.name, pair.public, namespaces))
    else:
        print(f"serve with --secret-key {secret}; verifiers get {public} as --server-key", file=sys.stderr)
        print(pair.public)
