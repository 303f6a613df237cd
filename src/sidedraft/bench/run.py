"""One run: every measure over every transport and row format that there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from sidedraft.bench import measures
from sidedraft.bench.errors import BenchError
from sidedraft.bench.measures import Arm, Progress
from sidedraft.bench.plan import Plan
from sidedraft.bench.report import Absent, Report, agreed
from sidedraft.bench.served import Served
from sidedraft.bench.session import Session, connected
from sidedraft.settings import VerifierSettings

MEASURES = ("round trips", "ingest", "proposals", "overlap")
"""In the order in which they run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A server at one address."""

    transport: str
    """`ipc` or `tcp`."""
    address: str
    served: Served


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What to measure, and how to connect."""

    places: Sequence[Place]
    """Servers of one draft."""
    kinds: Sequence[str]
    """Row formats of the ingest; the other measures take the first of them that the server reads."""
    plan: Plan
    settings: VerifierSettings
    namespace: str = "default"
    polite: bool = False
    """Others use the server too."""
    wait: float = 10.0
    """Seconds until a server that does not answer is given up."""

    def measure(self, report: Report, progress: Callable[[str], Progress]) -> None:
        """Fill a report. `progress`: given a measure's name, what is told how far it is.

        Raises:
            BenchError: there is no session, or a proposal got no draft.
        """
        with ExitStack() as stack:
            sessions = self._main_sessions(stack, report)
            plan = self.plan.within(next(iter(sessions.values())).agreement, polite=self.polite)
            report.round_trips += measures.round_trips(sessions, plan, progress(MEASURES[0]))
            self._ingest(sessions, plan, report, progress(MEASURES[1]))
            report.proposals += measures.proposals(sessions, plan, progress(MEASURES[2]))
            for arm, session in sessions.items():
                with ExitStack() as other:
                    second = self._connect(other, self._place(arm), arm[1])
                    report.overlap.append(
                        measures.overlap(session, second, arm, plan, progress(f"{MEASURES[3]}, {arm[0]}"))
                    )

    def _main_sessions(self, stack: ExitStack, report: Report) -> dict[Arm, Session]:
        """One a place, in the first format that its server reads."""
        sessions: dict[Arm, Session] = {}
        for place in self.places:
            for kind in self.kinds:
                try:
                    session = self._connect(stack, place, kind)
                except BenchError as error:
                    report.absent.append(Absent(transport=place.transport, row_format=kind, why=str(error)))
                    continue
                sessions[place.transport, kind] = session
                report.agreed.append(
                    agreed(place.transport, place.address, place.served.draft.family, session)
                )
                break
            else:
                raise BenchError(report.absent[-1].why)
        return sessions

    def _ingest(self, there: Mapping[Arm, Session], plan: Plan, report: Report, progress: Progress) -> None:
        with ExitStack() as stack:
            sessions = dict(there)
            absent = {(one.transport, one.row_format) for one in report.absent}
            for place in self.places:
                for kind in self.kinds:
                    arm = (place.transport, kind)
                    if arm in sessions or arm in absent:
                        continue
                    try:
                        sessions[arm] = self._connect(stack, place, kind)
                    except BenchError as error:
                        report.absent.append(
                            Absent(transport=place.transport, row_format=kind, why=str(error))
                        )
            report.ingest += measures.ingest(sessions, plan, progress)

    def _place(self, arm: Arm) -> Place:
        return next(place for place in self.places if place.transport == arm[0])

    def _connect(self, stack: ExitStack, place: Place, kind: str) -> Session:
        return stack.enter_context(
            connected(
                place.address,
                place.served,
                kind,
                namespace=self.namespace,
                settings=self.settings,
                wait=self.wait,
            )
        )
