"""`sidedraft serve`: run a draft server in the foreground."""

from __future__ import annotations

import argparse
import logging
import os
import resource
import sys
from pathlib import Path
from typing import Any

from sidedraft.cli.console import ProgressConsole
from sidedraft.cli.errors import print_error
from sidedraft.settings import ServerSettings, build, read_file

NAME = "serve"
HELP = "serve a draft model to verifiers"

DESCRIPTORS = 65_536

_FLAGS: tuple[tuple[str, str, str], ...] = (
    ("draft", "DIR", "folder of the draft checkpoint"),
    ("target", "DIR", "folder of the target; only its embedding and lm_head are read"),
    ("bundle", "DIR", "a folder made by `sidedraft pack`, instead of --draft and --target"),
    ("device", "NAME", "auto, cpu, cuda or cuda:N (default: auto)"),
    ("dtype", "NAME", "auto, float32, bfloat16 or float16 (default: auto)"),
    ("threads", "N", "threads to compute with on the CPU (default: torch's choice)"),
    ("bind", "ADDRESS", "ipc://PATH or tcp://HOST:PORT (default: ipc in a private folder)"),
    ("secret-key", "FILE", "this server's secret key (see `sidedraft keys`); everything is encrypted then"),
    ("clients", "FILE", "who may come in: public keys and rights; read again when it changes"),
    ("http", "HOST:PORT", "health, readiness and status, or off (default: 127.0.0.1:8091)"),
    ("kv-memory", "SIZE", "memory of context and scratch, such as 4GiB (default: 1GiB)"),
    ("window", "N", "context rows the draft sees (default: the draft's own)"),
    ("retain", "WHICH", "rows of a prompt to keep: window, or all for requests that share a part of it"),
    ("max-requests", "N", "requests open at once, over all verifiers (default: 64)"),
    ("session-requests", "N", "of those, one verifier's (default: all but an eighth)"),
    ("session-bytes", "SIZE", "one verifier's small messages that may wait (default: 64MiB)"),
    ("session-rows", "N", "context rows of one verifier's open requests (default: no bound)"),
    ("max-depth", "K", "greatest number of draft tokens a step (default: the draft's own)"),
    ("block-size", "N", "rows of a memory block: 16, 32, 64 or 128 (default: 16)"),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for name, metavar, text in _FLAGS:
        parser.add_argument(f"--{name}", metavar=metavar, help=text)
    parser.add_argument(
        "--namespace",
        dest="namespaces",
        metavar="NAME",
        action="append",
        help="a name verifiers may ask for; may be given several times (default: default)",
    )
    parser.add_argument("--config", metavar="FILE", help="a TOML file with the same settings; flags win")
    for name, text in (
        ("insecure-plain-text", "allow --bind to an address other hosts can reach, unencrypted"),
        ("strict-identity", "refuse verifiers whose target is only partly known to be the draft's"),
        ("vllm-compat", "read a speculators draft's causal flag as vLLM 0.32 does, for comparing with it"),
        ("exit-after-load", "load, test, and exit"),
        ("skip-smoke-test", "be ready without trying every shape first"),
    ):
        parser.add_argument(f"--{name}", action="store_const", const=True, help=text)


def read_settings(args: argparse.Namespace) -> ServerSettings:
    """Flags over the file over the defaults. Raises `SettingsError`."""
    names = ServerSettings.__struct_fields__
    values: dict[str, Any] = read_file(Path(args.config), names) if args.config is not None else {}
    given = {name: value for name, value in vars(args).items() if name in names and value is not None}
    return build(ServerSettings, values | given)


def run(args: argparse.Namespace) -> int:
    settings = read_settings(args)
    logging.basicConfig(level=logging.WARNING, format="sidedraft: %(levelname)s: %(message)s")
    console = ProgressConsole()
    # Imported late: `--help` and a wrong flag should not wait for sockets to be set up.
    from sidedraft.server.app import DraftServer

    _raise_descriptor_limit()
    server = DraftServer(settings, console)
    try:
        ending = server.run()
    finally:
        console.close()
    if ending.status:
        print_error(ending.reason)
    if not ending.threads_ended:
        # A thread is deep inside torch and cannot be asked to stop; every socket is closed already.
        sys.stdout.flush()
        os._exit(ending.status)
    return ending.status


def _raise_descriptor_limit() -> None:
    """Room for a burst of connections: libzmq aborts the process when it cannot accept one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(DESCRIPTORS, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
