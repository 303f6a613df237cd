"""What of vLLM's configuration does not go together with drafts from a server."""

from __future__ import annotations

from typing import Any

from sidedraft.settings import SettingsError


def unsupported(vllm_config: Any) -> list[SettingsError]:
    """Everything that stands in the way, in the words of vLLM's own settings.

    `draft_sample_method: probabilistic` does not: the drafts that come are chosen greedily, so that their
    distribution is one-hot, which the rejection sampler assumes when there are no draft logits.
    """
    speculative, parallel = vllm_config.speculative_config, vllm_config.parallel_config
    found: list[tuple[str, object, str]] = []
    if speculative.enable_adaptive_verification:
        found.append(("speculative_config.enable_adaptive_verification", True, "false with a draft server"))
    if speculative.use_heterogeneous_vocab:
        found.append(("speculative_config.use_heterogeneous_vocab", True, "false with a draft server"))
    if parallel.prefill_context_parallel_size > 1:
        size = parallel.prefill_context_parallel_size
        found.append(("prefill_context_parallel_size", size, "1 with a draft server"))
    if vllm_config.watermark_config is not None:
        found.append(("watermark_config", "set", "none with a draft server"))
    return [SettingsError(*one) for one in found]
