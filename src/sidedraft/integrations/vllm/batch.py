"""A vLLM batch brought to where planning can read it. The only place that waits for the target's device."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from sidedraft.device import Runtime
from sidedraft.integrations.vllm.planning import Columns

SMALL = 4 << 20
"""Bytes of rows that come to the host with the columns, rejected ones included: enough for decoding steps,
where one copy and one wait cost less than leaving them out. More stay where they are until the drafter copies
what it sends."""


@dataclass(frozen=True, slots=True, eq=False)
class StepBatch:
    """One step of the target."""

    request_ids: Sequence[str]
    columns: Columns
    rows: Tensor
    """[T, row width], aux states side by side, taps ascending; on the host or on the target's device."""
    slots: Sequence[int]
    """Places in the engine's request table."""
    seconds: dict[str, float]
    """By stage."""


def read_batch(
    runtime: Runtime, batch: Any, req_states: Any, aux: Sequence[Tensor], num_rejected: Tensor
) -> StepBatch:
    """Read vLLM's `InputBatch` after its sampled tokens have gone into `req_states`.

    Positions and tokens come from the device: under asynchronous scheduling the host only knows bounds.
    `aux` may be padded, and is overwritten by the next forward.
    """
    begun = time.perf_counter()
    count, length = batch.num_reqs, batch.num_tokens
    slots = batch.idx_mapping[:count]
    known = req_states.all_token_ids.gpu
    ends = req_states.num_computed_tokens.gpu[slots]
    next_tokens = known[slots, ends.long().clamp(max=known.shape[1] - 1)]
    parts = (num_rejected[:count], ends, next_tokens, batch.input_ids[:length])
    packed = torch.cat([part.to(torch.int32) for part in parts])
    rows = torch.cat([states[:length] for states in aux], dim=-1)
    gathered = time.perf_counter()
    packed = runtime.fetch(packed)
    if rows.nbytes <= SMALL:
        rows = runtime.fetch(rows)
    runtime.mark().wait()
    host = packed.numpy()
    starts = batch.query_start_loc_np[: count + 1]
    columns = Columns(
        starts=starts[:-1],
        scheduled=starts[1:] - starts[:-1],
        rejected=host[:count],
        ends=host[count : 2 * count],
        next_tokens=host[2 * count : 3 * count],
        prompts=batch.prefill_len_np[:count],
        limits=req_states.max_seq_len[batch.idx_mapping_np[:count]],
        tokens=host[3 * count :],
    )
    return StepBatch(
        request_ids=batch.req_ids,
        columns=columns,
        rows=rows,
        slots=batch.idx_mapping_np[:count].tolist(),
        seconds={"context_gather": gathered - begun, "metadata_d2h": time.perf_counter() - gathered},
    )


def places(batch: Any, depth: int) -> int:
    """Draft tokens that the engine will verify of requests whose prompt is done, as far as the host knows."""
    done = batch.num_computed_tokens_np + batch.num_scheduled_tokens >= batch.prefill_len_np
    return depth * int(done.sum())


def read_prefix(req_states: Any, slot: int, end: int) -> Tensor:
    """Tokens `[0, end)` of a request, int32 on the host. Waits for the device."""
    tokens: Tensor = req_states.all_token_ids.gpu[slot, :end].to("cpu")
    return tokens
