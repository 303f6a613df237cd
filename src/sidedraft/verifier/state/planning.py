"""A submit: which requests ask, which only ingest, which are opened, and what is sent for them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from sidedraft.verifier.state.cutting import Cut, Parcel, TooLongError, cut, parcels
from sidedraft.verifier.state.entry import Entry, SubmissionError
from sidedraft.verifier.state.figures import Figures
from sidedraft.verifier.state.ladder import Ladder
from sidedraft.verifier.state.outcome import NoDraft, Reason
from sidedraft.verifier.state.record import TokenRecord
from sidedraft.verifier.state.request import RequestState
from sidedraft.verifier.state.step import Ask, Step
from sidedraft.wire.advance import NO_TOKENS, Opening
from sidedraft.wire.agreement import Agreement


class Planner:
    """Turns submissions into a step and its messages."""

    def __init__(self, ladder: Ladder, figures: Figures) -> None:
        self._ladder = ladder
        self._figures = figures
        self._ids = itertools.count(1)

    def plan(self, now: float, entries: Sequence[Entry], begun: float) -> tuple[Step, list[Parcel]]:
        """Every entry gets an outcome now or becomes a question; every request's record is kept up.

        Raises:
            SubmissionError: an entry contradicts the others or what was submitted before; nothing changed.
        """
        ladder = self._ladder
        self._check(entries)
        step = Step([entry.key for entry in entries], begun, begun + ladder.patience.seconds())
        ladder.counters.steps += 1
        cuts: list[Cut] = []
        for index, entry in enumerate(entries):
            request = self._note(now, entry)
            made = self._advance(now, step, index, entry, request)
            if made is None:
                request.missed = True
            else:
                cuts.append(made)
        if not step.settled:
            ladder.steps.append(step)
        agreement = ladder.agreement
        if agreement is None or not cuts:
            return step, []
        return step, list(self._parcels(step, cuts, agreement))

    def _check(self, entries: Sequence[Entry]) -> None:
        seen = set()
        for entry in entries:
            if entry.key in seen:
                raise SubmissionError(entry.key, "request", "twice in one step", "one submission a step")
            seen.add(entry.key)
            request = self._ladder.requests.get(entry.key)
            if request is None:
                if entry.first > 0 and entry.prefix is None:
                    raise SubmissionError(
                        entry.key, "prefix", None, f"the {entry.first} tokens before `first` of a new request"
                    )
            elif entry.first > request.record.end:
                raise SubmissionError(
                    entry.key,
                    "first",
                    entry.first,
                    f"at most {request.record.end}, the end so far",
                )

    def _note(self, now: float, entry: Entry) -> RequestState:
        """Our own record, kept whatever the server does."""
        ladder = self._ladder
        request = ladder.requests.get(entry.key)
        if request is None:
            record = TokenRecord(NO_TOKENS if entry.prefix is None else entry.prefix)
            private = entry.private or not ladder.settings.sharing
            request = RequestState(entry.key, next(self._ids), record, entry.context_key, private)
            ladder.requests[entry.key] = ladder.by_id[request.wire_id] = request
        request.record.put(entry.first, entry.tokens)
        self._figures.judge(request, entry)
        ladder.supersede(now, request, NoDraft(Reason.SUPERSEDED))
        return request

    def _advance(self, now: float, step: Step, index: int, entry: Entry, request: RequestState) -> Cut | None:
        """The entry's advances, or None when nothing can be sent; puts an outcome or a question."""
        ladder = self._ladder
        agreement = ladder.agreement
        if agreement is None or ladder.blocked:
            if request.open:
                ladder.lose(now, [request], "an advance could not be sent")
            step.put(index, NoDraft(Reason.OPEN))
            return None
        if entry.end > min(agreement.limits.context, agreement.max_position):
            self._beyond(now, step, index, request)
            return None
        self._trim(entry, agreement)
        opening = None
        if not request.open:
            held_back = self._held_back(now, request, agreement)
            if held_back is not None:
                step.put(index, held_back)
                return None
            opening = Opening(request.record.prefix(entry.first), request.context_key, request.private)
        ladder.catch_up(now, request)
        depth = self._depth(now, step, index, entry, request, agreement)
        try:
            made = cut(
                entry,
                index,
                request.wire_id,
                request.generation if opening is None else request.generation + 1,
                request.sent + 1 if opening is None else 0,
                depth,
                opening,
                row_bytes=agreement.row_bytes,
                control_rows=ladder.settings.limits.control_rows,
                limits=agreement.limits,
            )
        except TooLongError:
            self._beyond(now, step, index, request)
            return None
        if opening is not None:
            self._open(request, agreement)
        for piece in made.pieces:
            request.hand_out(now, piece.advance.end)
        if depth:
            self._ask(now, step, index, request, entry, depth)
        return made

    def _trim(self, entry: Entry, agreement: Agreement) -> None:
        """Leave out the rows that no proposal of this request will be shown, unless others are to have them.

        A row is visible from an anchor less than a window behind it, and anchors only move on: the next one
        is the entry's end, or inside a prompt its horizon.
        """
        if agreement.window is None or agreement.retain == "all":
            return
        anchor = entry.end if entry.depth else max(entry.end, entry.horizon)
        skip = min(entry.row_count, max(0, anchor - (agreement.window - 1) - entry.rows_at))
        entry.rows_at += skip
        entry.row_count -= skip
        entry.rows_skip += skip
        self._ladder.counters.rows_skipped += skip
        self._ladder.counters.bytes_skipped += skip * agreement.row_bytes

    def _held_back(self, now: float, request: RequestState, agreement: Agreement) -> NoDraft | None:
        """Why it cannot be opened now, or None."""
        ladder = self._ladder
        if request.wire_id not in ladder.held and len(ladder.held) >= agreement.limits.requests:
            return NoDraft(Reason.FULL)
        full = request.lost and len(ladder.reopening) >= ladder.settings.reopen_in_flight
        return request.why_closed if full or now < request.retry_at else None

    def _beyond(self, now: float, step: Step, index: int, request: RequestState) -> None:
        """Longer than the draft's context, or than any message: no draft until it is rewound."""
        why = NoDraft(Reason.BEYOND)
        self._ladder.dismiss(now, request, why)
        step.put(index, why)

    def _depth(
        self, now: float, step: Step, index: int, entry: Entry, request: RequestState, agreement: Agreement
    ) -> int:
        """Drafts to ask for now: by the step, or by a probe; puts the outcome when it is not by the step."""
        ladder = self._ladder
        most = min(agreement.max_depth, agreement.limits.context - entry.end)
        wanted = min(entry.depth, most)
        if entry.depth == 0:
            step.put(index, NoDraft(Reason.UNASKED))
        elif wanted < 1:
            step.put(index, NoDraft(Reason.BEYOND))
        elif not ladder.breaker.closed:
            step.put(index, NoDraft(Reason.OPEN))
        elif request.lost:
            # Nobody waits for it until the server has answered its opening.
            step.put(index, NoDraft(Reason.LOST))
        elif request.behind:
            ladder.counters.behind += 1
            step.put(index, NoDraft(Reason.BEHIND))
        else:
            return wanted
        probe = ladder.breaker.probe_due(now) and most > 0 and request.open and ladder.caught_up(now, request)
        return max(wanted, 1) if probe else 0

    def _open(self, request: RequestState, agreement: Agreement) -> None:
        ladder = self._ladder
        lost = request.lost
        ladder.counters.reopened += request.generation >= 0
        request.begin(agreement.session)
        ladder.held.add(request.wire_id)
        if lost:
            ladder.reopening.add(request.wire_id)
            request.behind = True

    def _ask(
        self, now: float, step: Step, index: int, request: RequestState, entry: Entry, depth: int
    ) -> None:
        ladder = self._ladder
        ask = Ask(
            request=request,
            generation=request.generation,
            number=request.sent,
            end=entry.end,
            anchor=entry.next_token,
            depth=depth,
            asked_at=now,
            deadline=step.deadline,
            step=step,
            index=index,
        )
        if ladder.breaker.closed:
            ladder.counters.asked += 1
            request.ask = request.latest = ask
            step.add(ask)
        else:
            ask.step, ask.waiting = None, False
            ask.deadline = now + ladder.patience.longest()
            ladder.counters.probes += 1
            ladder.breaker.probing()
            ladder.probe = ask

    def _parcels(self, step: Step, cuts: list[Cut], agreement: Agreement) -> Iterator[Parcel]:
        ladder = self._ladder
        for parcel in parcels(
            cuts,
            session=agreement.session,
            row_bytes=agreement.row_bytes,
            limits=agreement.limits,
            deadline=step.deadline if ladder.probe is None else ladder.probe.deadline,
        ):
            parcel.step = step
            yield parcel
