"""How the status looks in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from sidedraft.cli.status_data import Report, Session, Status
from sidedraft.wire.figures import STAGES

BLOCKS = (("held", "cyan"), ("kept", "green"), ("pinned", "yellow"), ("free", "bright_black"))
BAR = 30
"""Characters of the bar of blocks."""

BREAKER_STYLES = {"closed": "green", "half_open": "yellow", "open": "red"}

NO_REPORT = "no report"
"""In place of figures; a verifier of an older version, or one that has just begun."""

TOGETHER = 4
"""Verifiers that fit beside each other."""


def view(status: Status, before: Status | None = None) -> RenderableType:
    """The whole picture; with an earlier status of the same server, rates as well."""
    parts: list[RenderableType] = [_head(status)]
    if status.counts.engine:
        parts += [_blocks(status.counts.engine), _engine(status, before)]
    parts += [
        _verifiers(status.sessions[at : at + TOGETHER]) for at in range(0, len(status.sessions), TOGETHER)
    ]
    return Group(*parts)


def _head(status: Status) -> Text:
    line = Text.assemble(
        (status.software, "bold"),
        "  ",
        ("ready" if status.ready else f"{status.phase}: {status.reason}", "green" if status.ready else "red"),
    )
    if status.family:
        line.append(f"  {status.family} draft on {status.device} ({status.dtype})")
    line.append(f"  up {timedelta(seconds=int(status.uptime_seconds))}  {status.address}")
    return line


def _blocks(engine: dict[str, int]) -> Text:
    total = max(1, engine.get("blocks_total", 0))
    line = Text("blocks  ")
    for state, style in BLOCKS:
        line.append("█" * round(BAR * engine.get(f"blocks_{state}", 0) / total), style)
    for state, style in BLOCKS:
        line.append(f"  {engine.get(f'blocks_{state}', 0):,} ").append(state, style)
    return line


def _engine(status: Status, before: Status | None) -> Text:
    engine = status.counts.engine
    seconds = 0.0 if before is None else status.uptime_seconds - before.uptime_seconds

    def grown(name: str, words: str) -> str:
        text = f"{engine.get(name, 0):,} {words}"
        if before is not None and seconds > 0:
            rate = (engine.get(name, 0) - before.counts.engine.get(name, 0)) / seconds
            text += f" ({rate:,.1f}/s)"
        return text

    most = "" if status.limits is None else f" of {status.limits.max_requests}"
    return Text(
        f"engine  {engine.get('requests', 0)}{most} requests, {engine.get('queued', 0)} queued, "
        + ", ".join(
            grown(name, words)
            for name, words in (
                ("steps", "steps"),
                ("proposals", "drafts"),
                ("rows_received", "rows"),
                ("rows_restored", "rows from the index"),
                ("rows_without_room", "rows without room"),
                ("errors", "errors"),
            )
        )
    )


def _verifiers(sessions: Sequence[Session]) -> Table:
    """A column a verifier: its figures, then the stages of its proposals."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("verifier")
    for session in sessions:
        table.add_column(Text(session.verifier), justify="right")
    table.add_row("breaker", *(Text(NO_REPORT) if s.report is None else _breaker(s.report) for s in sessions))
    for name, figure in FIGURES.items():
        table.add_row(name, *(_reported(session, figure) for session in sessions))
    table.add_section()
    table.add_row(Text("milliseconds: median (99 %)", "italic"))
    for stage in STAGES:
        cells = [_reported(session, partial(_stage, stage=stage)) for session in sessions]
        if any(cell.plain for cell in cells):
            table.add_row(stage, *cells)
    return table


def _reported(session: Session, figure: Callable[[Report], Text]) -> Text:
    return Text("") if session.report is None else figure(session.report)


def _breaker(report: Report) -> Text:
    return Text(report.breaker, BREAKER_STYLES.get(report.breaker, ""))


def _requests(report: Report) -> Text:
    behind = Text(f", {report.behind} behind", "yellow") if report.behind else Text("")
    return Text(str(report.requests)) + behind


def _count(report: Report, name: str, style: str = "") -> Text:
    value = report.counts.get(name, 0)
    return Text(f"{value:,}", style if value else "")


def _length(report: Report) -> Text:
    length = report.acceptance.length
    return Text("" if length is None else f"{length:.2f}", "bold")


def _by_position(report: Report) -> Text:
    pairs = zip(report.acceptance.accepted, report.acceptance.drafted, strict=False)
    return Text(" ".join(f"{100 * passed / tried:.0f}" for passed, tried in pairs if tried))


def _megabytes(report: Report) -> Text:
    sent = report.counts.get("bytes_control", 0) + report.counts.get("bytes_bulk", 0)
    return Text(f"{sent / 2**20:,.1f}")


def _stage(report: Report, stage: str) -> Text:
    """As far as buckets tell."""
    times = report.stages_ms.get(stage)
    if times is None or times.p50 is None or times.p99 is None:
        return Text("")
    return Text(f"{times.p50:.2f} ({times.p99:.2f})")


FIGURES: Mapping[str, Callable[[Report], Text]] = {
    "requests": _requests,
    "tokens a step with a draft": _length,
    "% accepted at 1, 2, ...": _by_position,
    "drafts": partial(_count, name="drafted"),
    "late": partial(_count, name="late", style="yellow"),
    "lost": partial(_count, name="lost", style="yellow"),
    "fillers": partial(_count, name="fillers"),
    "waits at most, ms": lambda report: Text(f"{report.deadline_ms:.0f}"),
    "rows sent": partial(_count, name="rows_sent"),
    "rows skipped": partial(_count, name="rows_skipped"),
    "rows dropped": partial(_count, name="rows_dropped", style="yellow"),
    "MiB sent": _megabytes,
}
"""Rows of the table of verifiers."""
