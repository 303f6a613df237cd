"""From the columns of a vLLM batch to what each request has gained and may ask for. Numpy only.

Every row of the batch belongs to a position; the first `scheduled - rejected` of a request are good: a chunk
of its prompt, or the anchor and the accepted draft tokens. The others must not be used.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.integer]


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """One step of a batch on the host: [B] by request, in batch order, and [T] by row."""

    starts: Ints
    """First row of each request."""
    scheduled: Ints
    """Rows of each request."""
    rejected: Ints
    """Rows of rejected draft tokens, the last of those scheduled."""
    ends: Ints
    """Computed positions after this step, which is the anchor's position."""
    next_tokens: Ints
    """The token at `ends`: the one sampled last, or inside a prompt the next one."""
    prompts: Ints
    """Length of what was given to compute: the prompt, and the output so far if the request was preempted."""
    limits: Ints
    """Tokens, prompt included, at which the request ends at the latest."""
    tokens: Ints
    """[T], the token of each row."""


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """[B] each."""

    firsts: Ints
    """Position of each request's first row."""
    kept: Ints
    """Good rows: positions `[first, first + kept)` with their tokens and aux states."""
    decoding: npt.NDArray[np.bool_]
    """The prompt is done: what stands at `ends` was sampled."""
    depths: Ints
    """Draft tokens worth asking for."""


def progress(columns: Columns, *, depth: int, max_model_len: int) -> Progress:
    """What every request gained.

    All that ask ask for the same depth, as a request of another depth would take a forward of its own on the
    server, and a draft's later tokens may shape its earlier ones. Not asked: inside a prompt; where at most
    one more token may come, which the target gives by itself; beyond the engine's last position.

    Args:
        depth: draft tokens that the engine will verify in its next step.

    Raises:
        ValueError: the columns contradict each other, so that no row can be trusted.
    """
    kept = columns.scheduled - columns.rejected
    firsts = columns.ends - kept
    if kept.size and (int(kept.min()) < 0 or int(columns.rejected.min()) < 0 or int(firsts.min()) < 0):
        raise ValueError(
            f"a batch with rows {columns.scheduled.tolist()}, of them rejected {columns.rejected.tolist()}, "
            f"that end at {columns.ends.tolist()}"
        )
    decoding = columns.ends >= columns.prompts
    left = np.minimum(columns.limits, max_model_len) - (columns.ends + 1)
    room = max_model_len - 1 - columns.ends
    depths = np.where(decoding & (left > 1), np.minimum(depth, room), 0)
    return Progress(firsts, kept, decoding, depths)


def sound(columns: Columns, vocab_size: int) -> npt.NDArray[np.bool_]:
    """[B]: whether all tokens of a request are ids of the target; placeholders of images may not be."""
    good = (columns.next_tokens >= 0) & (columns.next_tokens < vocab_size)
    bad = np.flatnonzero((columns.tokens < 0) | (columns.tokens >= vocab_size))
    if bad.size:
        good[np.searchsorted(columns.starts, bad, side="right") - 1] = False
    return good
