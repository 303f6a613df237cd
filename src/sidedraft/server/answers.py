"""An engine step's answers, sorted by the sessions they go to."""

from __future__ import annotations

from sidedraft.server.reply import Reply
from sidedraft.wire.advance import Answer
from sidedraft.wire.batch import Timings
from sidedraft.wire.limits import MAX_BATCH, MAX_MICROSECONDS


def group(reply: Reply) -> dict[int, tuple[int, list[Answer]]]:
    """By owner: the highest serial that is answered, and the answers in order."""
    groups: dict[int, tuple[int, list[Answer]]] = {}
    for job, answer in zip(reply.jobs, reply.answers, strict=True):
        serial, answers = groups.get(job.owner, (0, []))
        answers.append(answer)
        groups[job.owner] = (max(serial, job.serial), answers)
    return groups


def timings(reply: Reply, now: float) -> Timings:
    """Where a step's time went; `now` is when its answers are sent."""
    arrived = min(job.arrived for job in reply.jobs)
    return Timings(
        queue=_microseconds(reply.started - arrived),
        ingest=_microseconds(reply.ingest),
        propose=_microseconds(reply.propose),
        server=_microseconds(now - arrived),
        batch=min(reply.proposals, MAX_BATCH),
        slices=reply.slices,
    )


def _microseconds(seconds: float) -> int:
    return min(MAX_MICROSECONDS, max(0, round(seconds * 1e6)))
