"""The demo's result in a terminal."""

from __future__ import annotations

import statistics
from typing import Any

from rich.console import Console
from rich.table import Table

STAGES = {
    "target_forward": "target verifies",
    "context_gather": "verifier gathers tokens and aux states",
    "client_total": "verifier waits for the draft, in all",
    "serialize": "  of it: encoding and handing over",
    "rpc_roundtrip": "  of it: sent until answered",
    "server_queue": "    of it, on the server: waiting",
    "server_ingest": "    of it, on the server: context rows",
    "server_propose": "    of it, on the server: drafting",
    "server_total": "    of it, on the server: in all",
    "sample": "verifier accepts and samples",
}
"""Stages of a step with drafts, in the order in which they happen, and what they are."""


def print_result(found: dict[str, Any]) -> None:
    """Show what `arms.to_json` gives."""
    console = Console()
    table = Table(title="Greedy decoding, one prompt at a time", title_justify="left")
    table.add_column("prompts", no_wrap=True)
    for heading in ("#", "tok/s alone", "tok/s drafted", "speed-up", "tokens a step"):
        table.add_column(heading, justify="right")
    table.add_column("output", no_wrap=True)
    for kind in found["kinds"]:
        table.add_row(
            kind["name"],
            str(kind["prompts"]),
            f"{kind['plain_tokens_per_second']:.1f}",
            f"{kind['drafted_tokens_per_second']:.1f}",
            f"{statistics.mean(kind['speed_ups']):.2f}",
            f"{kind['acceptance_length']:.2f}",
            _output(kind),
        )
    console.print(table)
    stages = Table(title="A step with drafts (medians)", title_justify="left")
    stages.add_column("stage")
    stages.add_column("ms", justify="right")
    for name, text in STAGES.items():
        if name in found["stages_ms"]:
            stages.add_row(text, f"{found['stages_ms'][name]:.2f}")
    console.print(stages)
    for kind in found["kinds"]:
        for difference in kind["differences"]:
            console.print(f"{kind['name']}: {difference}", highlight=False)
    if found["mean_speed_up_of_domain"] is not None:
        console.print(
            f"mean speed-up on prompts of the draft's domain: {found['mean_speed_up_of_domain']:.2f}",
            highlight=False,
        )


def _output(kind: dict[str, Any]) -> str:
    if kind["identical"] == kind["prompts"]:
        return "identical"
    return f"{kind['identical']} of {kind['prompts']} identical, {kind['ties']} ties"
