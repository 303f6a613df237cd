"""`RemoteSpeculator`: what vLLM's model runner holds in place of a draft model of its own."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from vllm.distributed.parallel_state import get_tp_group
from vllm.v1.worker.gpu import model_runner
from vllm.v1.worker.gpu.spec_decode.speculator import BaseSpeculator

from sidedraft.device import runtime_for
from sidedraft.integrations.vllm.broadcast import TokenBroadcast
from sidedraft.integrations.vllm.config import VllmSettings
from sidedraft.integrations.vllm.depth import publish
from sidedraft.integrations.vllm.facts import verifier_facts
from sidedraft.integrations.vllm.requests import RequestTable, announce_new_requests, watch
from sidedraft.integrations.vllm.talker import Talker
from sidedraft.integrations.vllm.timing import StageLog
from sidedraft.verifier.drafter import Drafter

_log = logging.getLogger(__name__)

_WARM_UP = ("_warmup_", "_v2_mixed_warmup")
"""How vLLM's ids of requests begin that look real and only warm kernels up."""


class RemoteSpeculator(BaseSpeculator):  # type: ignore[misc] # vLLM is not there when types are checked
    """Gets draft tokens from a server on one rank, and gives every rank the same.

    The runner makes one on each tensor-parallel rank of the last pipeline stage; the first of them talks.
    """

    supports_mm_inputs = False
    draft_logits: Tensor | None = None
    """None tells the rejection sampler that drafts are one-hot: any id, and so any filler, is lossless."""
    pcp_manager: Any = None

    def __init__(
        self, vllm_config: Any, device: torch.device, req_states: Any, settings: VllmSettings
    ) -> None:
        """Raises ConfigurationError. Does not wait for a server."""
        self._width: int = vllm_config.speculative_config.num_speculative_tokens
        requests = vllm_config.scheduler_config.max_num_seqs
        self._tokens = TokenBroadcast(get_tp_group(), requests, self._width, device)
        self._talker: Talker | None = None
        self._table: RequestTable | None = None
        if self._tokens.first:
            self._begin_to_talk(vllm_config, device, req_states, settings)

    def init_cudagraph_manager(self, cudagraph_mode: Any) -> None:
        """There are no graphs of a draft here."""

    def capture(self) -> None:
        """As above."""

    def announce(self, new_requests: Iterable[Any]) -> None:
        """New-request data, before the requests are added."""
        if self._table is not None:
            self._table.announce(new_requests)

    def propose(
        self,
        input_batch: Any,
        attn_metadata: Any,
        slot_mappings: Any,
        last_hidden_states: Tensor,
        aux_hidden_states: list[Tensor] | None,
        num_sampled: Tensor,
        num_rejected: Tensor,
        last_sampled: Tensor,
        next_prefill_tokens: Tensor,
        temperature: Tensor,
        seeds: Tensor,
        dp_sync_state: Any = None,
        dummy_run: bool = False,
        skip_attn_for_dummy_run: bool = False,
        mm_inputs: Any = None,
        is_profile: bool = False,
        num_speculative_tokens: int | None = None,
    ) -> Tensor:
        """Draft tokens int64 [B, width] of a step, the same on every rank.

        Columns from `num_speculative_tokens` on are of no use to the runner, which overwrites them; at 0 the
        step is stated to the server and no rank waits for another.
        """
        count = input_batch.num_reqs
        if dummy_run or is_profile or input_batch.req_ids[0].startswith(_WARM_UP):
            return self._tokens.take(count)
        depth = self._width if num_speculative_tokens is None else num_speculative_tokens
        try:
            if self._talker is not None:
                self._talk(self._talker, input_batch, aux_hidden_states, num_rejected, depth)
        finally:
            # The other ranks are waiting for this already, whatever happened above.
            if depth:
                self._tokens.share()
        return self._tokens.take(count)

    def _talk(
        self, talker: Talker, batch: Any, aux: list[Tensor] | None, num_rejected: Tensor, depth: int
    ) -> None:
        try:
            talker.draft(batch, aux, num_rejected, depth, self._tokens.tokens)
        except Exception as error:
            talker.failed(error, batch, depth)

    def _begin_to_talk(
        self, vllm_config: Any, device: torch.device, req_states: Any, settings: VllmSettings
    ) -> None:
        facts, runtime = verifier_facts(vllm_config, settings, device), runtime_for(device)
        drafter = Drafter(settings.address, facts, settings.verifier())
        weakref.finalize(self, drafter.close)
        self._table = RequestTable(drafter.release)
        watch(req_states, self._table)
        announce_new_requests(model_runner.GPUModelRunner)
        self._talker = Talker(
            drafter,
            self._table,
            runtime,
            req_states,
            StageLog(settings.timing_log_interval),
            publish(vllm_config),
        )
        _log.info(
            "drafts of %s tokens come from %s, draft %s, taps %s",
            self._width,
            settings.address,
            facts.draft.family,
            list(facts.target.taps),
        )
