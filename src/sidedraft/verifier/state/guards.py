"""What a draft from outside must satisfy before the engine sees it."""

from __future__ import annotations

import numpy as np

from sidedraft.verifier.state.outcome import Draft, NoDraft, Outcome, Reason
from sidedraft.verifier.state.step import Ask
from sidedraft.wire.advance import Answer
from sidedraft.wire.advance import Outcome as Remote

_WITHOUT = {
    Remote.EXPIRED: Reason.EXPIRED,
    Remote.SUPERSEDED: Reason.SUPERSEDED,
    Remote.NO_DRAFT: Reason.NO_DRAFT,
    Remote.INGESTED: Reason.NO_DRAFT,
}


def judge(ask: Ask, answer: Answer, vocab_size: int) -> Outcome:
    """The outcome of `ask` by an answer to exactly its generation, number and base.

    The wire's decoder has checked the same ids; here they are checked again because what passes goes into
    an embedding of the target, whatever decoder stands before.
    """
    if answer.outcome is Remote.REFUSED:
        return NoDraft(Reason.REFUSED, f"{answer.error}: {answer.detail}")
    if answer.outcome is not Remote.DRAFTED:
        return NoDraft(_WITHOUT[answer.outcome], answer.detail)
    tokens, confidence = answer.tokens, answer.confidence
    if tokens.ndim != 1 or not 1 <= len(tokens) <= ask.depth:
        return NoDraft(Reason.BAD_REPLY, f"{tokens.shape} draft tokens, expected 1 to {ask.depth}")
    if int(tokens.min()) < 0 or int(tokens.max()) >= vocab_size:
        return NoDraft(Reason.BAD_REPLY, f"a draft token outside [0, {vocab_size})")
    if confidence is not None and (confidence.shape != tokens.shape or not np.isfinite(confidence).all()):
        return NoDraft(Reason.BAD_REPLY, f"confidences of shape {confidence.shape} or not finite")
    # Copies: the answer's arrays are views of a receive buffer.
    return Draft(
        tokens.astype(np.int32),
        None if confidence is None else confidence.astype(np.float32),
        answer.context_start,
        answer.rows_present,
    )
