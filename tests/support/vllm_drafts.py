"""What a speculator proposes, step by step, recorded inside vLLM's process; its own or ours alike.

The functions are for `Engine.call` of an in-process engine.
"""

from __future__ import annotations

import re
from typing import Any

_blocks: list[dict[str, Any]] = []


def record(llm: Any) -> str:
    """Record from here on; gives the speculator's class. Once an engine."""
    runner = _runner(llm)
    speculator = runner.speculator
    propose = speculator.propose
    gaps = _watch_gaps(speculator)

    def recorded(batch: Any, *args: Any, **named: Any) -> Any:
        gaps.clear()
        drafts = propose(batch, *args, **named)
        if not (named.get("dummy_run") or named.get("is_profile")):
            _blocks.extend(_look(runner.req_states, batch, drafts, gaps))
        return drafts

    speculator.propose = recorded
    return type(speculator).__name__


def recorded(llm: Any) -> list[dict[str, Any]]:
    """Of every request and step that a draft is of use to: `request`, `end` (the anchor's position),
    `anchor`, `tokens` of the draft and, of vLLM's own, `gaps` between the two best logits of each."""
    return list(_blocks)


def norm_each_layer(llm: Any) -> None:
    """Mend vLLM's own drafter on a CPU: the kernel there takes one row of weights, so that the context's
    keys of every layer are normed with the first layer's (docs/drafts.md)."""
    from torch.nn import functional

    model = _runner(llm).speculator.model.model

    def normalize(keys: Any) -> Any:  # [layers, rows, heads, head width]
        normed = functional.rms_norm(keys, keys.shape[-1:], eps=model._rms_norm_eps)
        return (normed * model._k_norm_weights[:, None, None, :]).contiguous()

    model._normalize_context_k = normalize


def wait_for_server(llm: Any) -> None:
    """Until our drafter has a session, so that the very first step is drafted for."""
    if not _runner(llm).speculator._talker._drafter.wait_connected(60.0):
        raise TimeoutError("no session with the draft server")


def _runner(llm: Any) -> Any:
    return llm.llm_engine.model_executor.driver_worker.worker.model_runner


def _look(states: Any, batch: Any, drafts: Any, gaps: list[Any]) -> list[dict[str, Any]]:
    import torch

    slots = batch.idx_mapping[: batch.num_reqs].tolist()
    between = torch.stack(gaps, dim=1).tolist() if gaps else [None] * len(slots)
    found = []
    for row, (name, slot) in enumerate(zip(batch.req_ids, slots, strict=True)):
        end = int(states.num_computed_tokens.gpu[slot])
        in_prompt = end < int(batch.prefill_len_np[row])
        if in_prompt or int(states.max_seq_len[slot]) - (end + 1) <= 1:
            continue
        number = re.match(r"request-(\d+)", name)
        assert number is not None, name
        found.append(
            {
                "request": int(number[1]),
                "end": end,
                "anchor": int(states.all_token_ids.gpu[slot, end]),
                "tokens": drafts[row].tolist(),
                "gaps": between[row],
            }
        )
    return found


def _watch_gaps(speculator: Any) -> list[Any]:
    """Holds, after a `propose` of vLLM's own drafters, for each draft place the gaps of all requests."""
    gaps: list[Any] = []

    def gap(logits: Any) -> Any:
        best = logits.float().topk(2, dim=-1).values
        return best[..., 0] - best[..., 1]

    if hasattr(speculator, "_sample_logits"):  # dspark: place by place
        sample = speculator._sample_logits

        def sample_logits(logits: Any, *args: Any) -> Any:
            gaps.append(gap(logits))
            return sample(logits, *args)

        speculator._sample_logits = sample_logits
    elif hasattr(speculator, "compute_draft_logits"):  # dflash: all places, request by request
        compute = speculator.compute_draft_logits

        def compute_draft_logits(*args: Any) -> Any:
            logits = compute(*args)
            gaps.extend(gap(logits).view(-1, speculator.num_speculative_steps).unbind(1))
            return logits

        speculator.compute_draft_logits = compute_draft_logits
    return gaps
