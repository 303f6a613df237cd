"""One step's talk with the draft server, on the rank that talks. Knows vLLM's batches, not vLLM."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sidedraft.device import Runtime
from sidedraft.integrations.vllm.batch import StepBatch, places, read_batch
from sidedraft.integrations.vllm.depth import DepthWord
from sidedraft.integrations.vllm.planning import progress
from sidedraft.integrations.vllm.requests import RequestTable
from sidedraft.integrations.vllm.stating import Stater
from sidedraft.integrations.vllm.timing import StageLog
from sidedraft.verifier.drafter import Drafter
from sidedraft.verifier.state.outcome import Draft, Outcome

_log = logging.getLogger(__name__)

_SILENCE = 5.0
"""Seconds between two log lines about failures of our own."""


class Talker:
    """States what the target confirmed, and gets drafts.

    Args:
        drafter: everything about the server; it never raises for what a server does.
        word: where the scheduler reads how deep to draft; None when it does not.
    """

    def __init__(
        self,
        drafter: Drafter,
        table: RequestTable,
        runtime: Runtime,
        req_states: Any,
        stage_log: StageLog,
        word: DepthWord | None,
    ) -> None:
        self._drafter = drafter
        self._table = table
        self._runtime = runtime
        self._req_states = req_states
        self._stage_log = stage_log
        self._word = word
        self._stater = Stater(table, req_states, drafter.facts.target.vocab_size)
        self._alone = False
        self._silent_until = 0.0

    def draft(
        self, batch: Any, aux: Sequence[Tensor] | None, num_rejected: Tensor, depth: int, out: Tensor
    ) -> None:
        """State one step of vLLM's `InputBatch`, and put drafts into `out`, int64 [max requests, width].

        Places without a draft get the request's anchor. When this raises, or there is no server, `out` holds
        what it held: ids of the target in any case.

        Args:
            depth: draft tokens that the engine will verify; at 0 the step is stated all the same.
        """
        if not self._drafter.connected:
            self._go_alone(batch, depth)
            return
        self._alone = False
        step = read_batch(self._runtime, batch, self._req_states, self._checked(aux), num_rejected)
        # As the engine has it now: it may have made itself shorter since it told the server.
        gained = progress(step.columns, depth=depth, max_model_len=self._req_states.max_model_len)
        known = [self._table.find(request_id) for request_id in step.request_ids]
        submissions = self._stater.submissions(step, gained, known)
        pending = self._drafter.submit([one for one in submissions if one is not None])
        outcomes = pending.result()
        begun = time.perf_counter()
        drafts = [None if one is None else outcomes[one.request] for one in submissions]
        drafted = self._deliver(step, drafts, out)
        step.seconds["tokens_h2d"] = time.perf_counter() - begun
        self._tell_scheduler()
        self._drafter.count_fillers(depth * int(np.count_nonzero(gained.depths)) - drafted)
        for stage, seconds in step.seconds.items():
            self._drafter.observe(stage, seconds)
        self._stage_log.add(step.seconds | pending.times)

    def failed(self, error: Exception, batch: Any, depth: int) -> None:
        """`draft` raised: what was stated of these requests is not certain. Never raises."""
        try:
            self._table.doubt(batch.req_ids)
            if self._word is not None:
                self._word.set(0)  # until a step goes well again
            self._drafter.count_fillers(places(batch, depth))
            if time.monotonic() >= self._silent_until:
                self._silent_until = time.monotonic() + _SILENCE
                _log.warning("a step without drafts, by a fault of ours", exc_info=error)
        except Exception:
            _log.exception("requests of a failed step could not be given up")

    def _go_alone(self, batch: Any, depth: int) -> None:
        """No server: nothing is read from the device, and requests are stated anew when there is one."""
        if not self._alone:
            self._alone = True
            _log.warning("%s: no session with a draft server; serving without drafts", self._drafter.address)
        self._table.doubt()
        self._tell_scheduler()
        self._drafter.count_fillers(places(batch, depth))

    def _tell_scheduler(self) -> None:
        if self._word is not None:
            self._word.set(self._drafter.depth)

    def _checked(self, aux: Sequence[Tensor] | None) -> Sequence[Tensor]:
        """The aux states, if they are what the server was told."""
        target = self._drafter.facts.target
        widths = [states.shape[-1] for states in aux or ()]
        if aux is None or widths != [target.hidden_size] * len(target.taps):
            expected = f"{target.hidden_size} at each of the taps {list(target.taps)}"
            raise RuntimeError(f"the target gives aux states of widths {widths}; expected {expected}")
        return aux

    def _deliver(self, step: StepBatch, drafts: Sequence[Outcome | None], out: Tensor) -> int:
        """Fill `out`; gives how many places hold draft tokens."""
        anchors = step.columns.next_tokens.astype(np.int64)
        # An id that no embedding has, of a request that is not stated, must not become a filler.
        anchors[(anchors < 0) | (anchors >= self._drafter.facts.target.vocab_size)] = 0
        tokens = np.repeat(anchors[:, None], out.shape[1], axis=1)
        drafted = 0
        for row, draft in zip(tokens, drafts, strict=True):
            if isinstance(draft, Draft):
                row[: len(draft.tokens)] = draft.tokens
                drafted += len(draft.tokens)
        self._runtime.upload(torch.from_numpy(tokens), out[: len(tokens)])
        return drafted
