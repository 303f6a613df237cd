"""A bench report in a terminal: one table, a part for each measure."""

from __future__ import annotations

from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sidedraft.settings import format_bytes

WIDE = 160
"""Columns where there is no terminal to ask."""


def print_report(found: dict[str, Any], console: Console | None = None) -> None:
    """Show what `bench.report.Report.to_json` gives."""
    console = Console(markup=False, highlight=False) if console is None else console
    if not console.is_terminal:
        console.width = WIDE
    for one in found["agreed"]:
        console.print(_handshake(one))
    console.print(_table(found))
    for one in found["absent"]:
        console.print(f"{one['transport']} {one['row_format']}: not measured: {one['why']}")


def _handshake(one: dict[str, Any]) -> Text:
    limits = one["limits"]
    features = ", ".join(one["features"]) or "none"
    return Text(
        f"{one['transport']}: {one['family']} draft at {one['address']}; protocol 1.{one['minor']}, "
        f"rows of {one['row_width']} values as {one['row_format']}, depth {one['max_depth']}, "
        f"context {limits['context']}, {limits['requests']} requests, "
        f"bulk frames of {format_bytes(limits['bulk_payload'])} and credit of "
        f"{format_bytes(limits['bulk_credit'])}, features {features}, namespace {one['namespace']}, "
        f"identity {one['identity']}"
    )


def _table(found: dict[str, Any]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title=_title(found), title_justify="left")
    for heading, justify in (("", "left"), ("transport", "left"), ("rows", "left"), ("what", "left")):
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    for heading in ("p50 ms", "p99 ms", "n"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("of it")
    for name, entries in (
        ("round trip", [(one, format_bytes(one["payload"]), "time", "") for one in found["round_trips"]]),
        ("ingest", [(one, _prompt(one), "time", _rate(one)) for one in found["ingest"]]),
        ("proposal", [(one, _step(one), "time", _split(one)) for one in found["proposals"]]),
    ):
        for number, (one, what, key, more) in enumerate(entries):
            _row(table, "" if number else name, one, what, one[key], more)
        table.add_section()
    for number, one in enumerate(found["overlap"]):
        _row(table, "" if number else "overlap", one, f"batch {one['batch']}, idle", one["idle"], "")
        more = f"{one['ratio']:.2f} x idle, {one['gigabytes_per_second']:.2f} GB/s ingested meanwhile"
        _row(table, "", one, f"batch {one['batch']}, beside ingest", one["busy"], more)
    return table


def _title(found: dict[str, Any]) -> str:
    return (
        f"{found['draft']} ({found['server']} server): medians and p99 of samples taken by turns; "
        "a round trip is a proposal without the model's time"
    )


def _row(table: Table, name: str, one: dict[str, Any], what: str, time: dict[str, Any], more: str) -> None:
    table.add_row(
        name,
        one["transport"],
        one["row_format"],
        what,
        f"{time['p50']:.2f}",
        f"{time['p99']:.2f}",
        str(time["samples"]),
        more,
    )


def _prompt(one: dict[str, Any]) -> str:
    return f"{one['rows']} rows, {format_bytes(one['payload'])}"


def _rate(one: dict[str, Any]) -> str:
    return (
        f"{one['gigabytes_per_second']:.2f} GB/s, {one['rows_per_second']:,.0f} rows/s, "
        f"caller blocked {one['blocked']['p50']:.2f}"
    )


def _step(one: dict[str, Any]) -> str:
    return f"batch {one['batch']}, depth {one['depth']}, context {one['context']}"


def _split(one: dict[str, Any]) -> str:
    return (
        f"client {one['client']:.2f}, queue {one['queue']:.2f}, model {one['model']:.2f}, "
        f"server's rest {one['other']:.2f}"
    )
