"""The format of the speculators library: `speculators_model_type`, `transformer_layer_config`.

Reference implementation: the package `speculators` 0.9.0.
"""

from __future__ import annotations

from typing import cast

from sidedraft.drafts.base import Layout
from sidedraft.drafts.configs import backbone as keys
from sidedraft.drafts.configs.draft_config import DraftConfig, FamilyName, MarkovConfig
from sidedraft.drafts.configs.fields import Fields
from sidedraft.drafts.configs.layers import Windows, by_layer_kind, read_windows

FAMILIES = ("dflash", "dspark")
DEFAULT_BLOCK = 8
DEFAULT_DRAFT_VOCAB = 32000
DEFAULT_MARKOV_RANK = 256


def read(top: Fields, *, vllm_compat: bool = False) -> DraftConfig:
    """A dflash or dspark speculator. `vllm_compat`: read the causal flag as vLLM 0.32 does."""
    family = top.text_or("speculators_model_type", "")
    if family not in FAMILIES:
        top.fail("speculators_model_type", "one of " + ", ".join(FAMILIES))
    stack = top.section("transformer_layer_config")
    if stack.text_or("model_type", "qwen3") not in ("qwen3", "llama"):
        stack.fail("model_type", "qwen3 or llama: the layers are Qwen3 layers under either name")
    keys.refuse_unsupported(top)
    keys.refuse_unsupported(stack)
    backbone = keys.read_backbone(stack)
    windows = read_windows(stack, backbone.layers)
    block = top.integer_or("block_size", DEFAULT_BLOCK, low=1)
    layout = _read_layout(top, block)
    taps = keys.read_taps(top, "aux_hidden_state_layer_ids", offset=0)
    if taps is None:
        top.fail("aux_hidden_state_layer_ids", "the target's aux ids")
    return DraftConfig(
        family=cast(FamilyName, family),
        backbone=backbone,
        layout=layout,
        taps=taps,
        target_hidden_size=top.integer_or("target_hidden_size", backbone.hidden_size, low=1),
        target_vocab_size=backbone.vocab_size,
        draft_vocab_size=top.integer_or("draft_vocab_size", DEFAULT_DRAFT_VOCAB, low=1),
        mask_token_id=keys.read_mask_token(top, backbone.vocab_size),
        block_size=keys.read_block_size(top, layout, DEFAULT_BLOCK),
        windows=windows,
        causal=_read_causal(top, family, windows, vllm_compat),
        markov=_read_markov(top) if family == "dspark" else None,
    )


def _read_markov(top: Fields) -> MarkovConfig:
    return keys.read_markov(top, default_rank=DEFAULT_MARKOV_RANK, default_confidence=True)


def _read_layout(top: Fields, block: int) -> Layout:
    """Reading the wrong rows costs nearly all acceptance and fails nowhere, so nothing is guessed.

    The proposal's depth settles it: as many tokens as block rows means that the anchor's row predicts too,
    one fewer that it does not. Files older than `sample_from_anchor` can be told apart only by that.
    """
    flag = top.flag_or("sample_from_anchor", None)
    methods = top.section("speculators_config").sections("proposal_methods")
    depth = methods[0].integer_or("speculative_tokens", None) if methods else None
    by_depth = None
    if depth is not None and depth in (block, block - 1):
        by_depth = depth == block
    if flag is None and by_depth is None:
        top.fail(
            "sample_from_anchor",
            f"true or false, as speculative_tokens ({depth}) does not tell (block_size {block})",
        )
    if flag is not None and by_depth is not None and flag is not by_depth:
        top.fail("sample_from_anchor", f"{by_depth}, as speculative_tokens is {depth} and block_size {block}")
    return Layout.ANCHOR if (flag if flag is not None else by_depth) else Layout.BONUS


def _read_causal(top: Fields, family: str, windows: Windows, vllm_compat: bool) -> tuple[bool, ...]:
    """`sliding_window_non_causal` is about sliding layers: full attention was trained bidirectional.

    vLLM 0.32 differs: for dflash it applies the flag to every layer (and reads an absent one as true); for
    dspark it ignores the flag and makes sliding layers causal.
    """
    if vllm_compat and family == "dflash":
        return (not top.flag_or("sliding_window_non_causal", True),) * len(windows)
    if vllm_compat:
        return by_layer_kind(windows, sliding_causal=True)
    return by_layer_kind(windows, sliding_causal=not top.flag_or("sliding_window_non_causal", False))
