"""Tiny checkpoints with random weights: a Llama target and drafts of every family and format.

They are what real folders look like (config.json and model.safetensors), only small: loading one takes
milliseconds. Weights are large enough that greedy choices are far from ties.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor

Format = Literal["zlab", "deepspec", "specforge", "speculators"]


def tiny_target(
    path: Path,
    *,
    hidden: int = 32,
    layers: int = 6,
    heads: int = 4,
    kv_heads: int = 2,
    vocab: int = 97,
    tied: bool = True,
    seed: int = 0,
    prefix: str = "",
    shards: int = 1,
    dtype: torch.dtype = torch.float32,
) -> Path:
    """A Llama checkpoint folder that transformers loads.

    `prefix` ("language_model.") goes before every name, as vision-language checkpoints have it; `shards` > 1
    writes that many files and an index.
    """
    generator = torch.Generator().manual_seed(seed)
    head_dim, inner = hidden // heads, 2 * hidden
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "max_position_embeddings": 4096,
        "vocab_size": vocab,
        "tie_word_embeddings": tied,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "dtype": str(dtype).removeprefix("torch."),
    }
    weights = {
        "model.embed_tokens.weight": _matrix(generator, vocab, hidden),
        "model.norm.weight": _norm(generator, hidden),
    }
    if not tied:
        weights["lm_head.weight"] = _matrix(generator, vocab, hidden)
    for layer in range(layers):
        name = f"model.layers.{layer}."
        weights |= _block(generator, name, hidden, heads, kv_heads, head_dim, inner, head_norms=False)
    weights = {prefix + name: tensor.to(dtype) for name, tensor in weights.items()}
    return write_checkpoint(path, config, weights, shards=shards)


def tiny_draft(
    path: Path,
    family: Literal["dflash", "dspark"],
    *,
    target: Path,
    layout: Literal["anchor", "bonus"] | None = None,
    layers: int = 2,
    taps: Sequence[int] = (1, 3, 5),
    draft_vocab: int | None = None,
    max_depth: int = 4,
    format: Format | None = None,  # noqa: A002 - the word the configs' readers use
    windows: Sequence[int | None] | None = None,
    causal: bool | None = None,
    confidence: bool = True,
    markov_rank: int = 8,
    own_embedding: bool = False,
    own_head: bool = False,
    heads: int = 4,
    kv_heads: int = 2,
    head_dim: int = 8,
    seed: int = 1,
    overrides: Mapping[str, Any] | None = None,
) -> Path:
    """A draft folder for `target`. `taps` are aux ids; each format writes them in its own numbering.

    `layout` defaults to the family's (dflash: bonus, dspark: anchor). `draft_vocab` picks evenly spread
    tokens and writes `d2t`. `windows` gives each layer's sliding window; `causal` is the flag for
    sliding layers. `overrides` replaces top-level config entries last (None removes one).
    """
    target_config = json.loads((target / "config.json").read_text())
    hidden, vocab = target_config["hidden_size"], target_config["vocab_size"]
    layout = layout or ("bonus" if family == "dflash" else "anchor")
    format_ = format or ("zlab" if family == "dflash" else "deepspec")
    windows = tuple(windows or (None,) * layers)
    generator = torch.Generator().manual_seed(seed)
    inner, mask = 2 * hidden, vocab - 1
    backbone = {
        "model_type": "qwen3",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "max_position_embeddings": 4096,
        "vocab_size": vocab,
        "attention_bias": False,
        "tie_word_embeddings": False,
        "layer_types": ["sliding_attention" if width else "full_attention" for width in windows],
        "sliding_window": next((width for width in windows if width), None),
        "use_sliding_window": any(windows),
    }
    markov = {
        "markov_rank": markov_rank,
        "markov_head_type": "vanilla",
        "enable_confidence_head": confidence,
        "confidence_head_with_markov": confidence and markov_rank > 0,
    }
    writer = {
        "zlab": _zlab,
        "deepspec": _deepspec,
        "specforge": _specforge,
        "speculators": _speculators,
    }[format_]
    config = writer(
        _Facts(
            family,
            backbone,
            markov,
            tuple(taps),
            layout,
            max_depth,
            mask,
            draft_vocab,
            causal,
            target_config["num_hidden_layers"],
        )
    )
    for key, value in (overrides or {}).items():
        if value is None:
            config.pop(key, None)
        else:
            config[key] = value

    weights = {
        "fc.weight": _matrix(generator, hidden, len(taps) * hidden),
        "hidden_norm.weight": _norm(generator, hidden),
        "norm.weight": _norm(generator, hidden),
    }
    for layer in range(layers):
        weights |= _block(
            generator, f"layers.{layer}.", hidden, heads, kv_heads, head_dim, inner, head_norms=True
        )
    rows = draft_vocab or vocab
    if family == "dspark":
        if markov_rank:
            weights["markov_head.markov_w1.weight"] = _matrix(generator, vocab, markov_rank)
            weights["markov_head.markov_w2.weight"] = _matrix(generator, rows, markov_rank)
        if confidence:
            weights["confidence_head.proj.weight"] = _matrix(generator, 1, hidden + markov_rank)
            weights["confidence_head.proj.bias"] = torch.zeros(1)
    if draft_vocab is not None:
        ids = torch.arange(draft_vocab) * vocab // draft_vocab
        weights["d2t"] = ids - torch.arange(draft_vocab)
    if own_embedding:
        weights["embed_tokens.weight"] = _matrix(generator, vocab, hidden)
    if own_head:
        weights["lm_head.weight"] = _matrix(generator, rows, hidden)
    return write_checkpoint(path, config, weights)


def write_checkpoint(
    path: Path, config: Mapping[str, Any], weights: Mapping[str, Tensor], *, shards: int = 1
) -> Path:
    """Write config.json and the tensors, as one file or as `shards` files with an index."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config, indent=1))
    if shards == 1:
        save_file(dict(weights), path / "model.safetensors", metadata={"format": "pt"})
        return path
    names = sorted(weights)
    places = {name: f"model-{i % shards + 1:05}-of-{shards:05}.safetensors" for i, name in enumerate(names)}
    for file in set(places.values()):
        part = {name: weights[name] for name in names if places[name] == file}
        save_file(part, path / file, metadata={"format": "pt"})
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    return path


def _matrix(generator: torch.Generator, rows: int, columns: int) -> Tensor:
    return torch.randn(rows, columns, generator=generator) * 0.3


def _norm(generator: torch.Generator, width: int) -> Tensor:
    return torch.rand(width, generator=generator) + 0.5


def _block(
    generator: torch.Generator,
    name: str,
    hidden: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    inner: int,
    *,
    head_norms: bool,
) -> dict[str, Tensor]:
    weights = {
        name + "input_layernorm.weight": _norm(generator, hidden),
        name + "post_attention_layernorm.weight": _norm(generator, hidden),
        name + "self_attn.q_proj.weight": _matrix(generator, heads * head_dim, hidden),
        name + "self_attn.k_proj.weight": _matrix(generator, kv_heads * head_dim, hidden),
        name + "self_attn.v_proj.weight": _matrix(generator, kv_heads * head_dim, hidden),
        name + "self_attn.o_proj.weight": _matrix(generator, hidden, heads * head_dim),
        name + "mlp.gate_proj.weight": _matrix(generator, inner, hidden),
        name + "mlp.up_proj.weight": _matrix(generator, inner, hidden),
        name + "mlp.down_proj.weight": _matrix(generator, hidden, inner),
    }
    if head_norms:
        weights[name + "self_attn.q_norm.weight"] = _norm(generator, head_dim)
        weights[name + "self_attn.k_norm.weight"] = _norm(generator, head_dim)
    return weights


Config = dict[str, Any]


@dataclass(frozen=True)
class _Facts:
    """What every format writes in words of its own."""

    family: str
    backbone: Config
    markov: Config
    taps: tuple[int, ...]
    layout: str
    depth: int
    mask: int
    draft_vocab: int | None
    causal: bool | None
    target_layers: int


def _zlab(facts: _Facts) -> Config:
    if facts.family != "dflash" or facts.layout != "bonus":
        raise ValueError("the z-lab format holds dflash drafts with a bonus anchor")
    inner: Config = {
        "mask_token_id": facts.mask,
        "target_layer_ids": [tap - 1 for tap in facts.taps],
        "block_size": facts.depth + 1,
    }
    if facts.causal is not None:
        inner["causal"] = facts.causal
    config = facts.backbone | {
        "architectures": ["DFlashDraftModel"],
        "num_target_layers": facts.target_layers,
        "dflash_config": inner,
    }
    return config if facts.draft_vocab is None else config | {"draft_vocab_size": facts.draft_vocab}


def _deepspec(facts: _Facts) -> Config:
    if facts.family != "dspark":
        raise ValueError("the DeepSpec format holds dspark drafts")
    config = facts.backbone | facts.markov
    config |= {
        "architectures": ["Qwen3DSparkModel"],
        "num_target_layers": facts.target_layers,
        "target_layer_ids": [tap - 1 for tap in facts.taps],
        "block_size": facts.depth if facts.layout == "anchor" else facts.depth + 1,
        "mask_token_id": facts.mask,
        "sample_from_anchor": facts.layout == "anchor",
        "draft_vocab_size": facts.draft_vocab or facts.backbone["vocab_size"],
    }
    return config if facts.causal is None else config | {"is_causal": facts.causal}


def _specforge(facts: _Facts) -> Config:
    if facts.family != "dspark" or facts.layout != "anchor":
        raise ValueError("the SpecForge format holds anchor-sampled dspark drafts")
    inner: Config = facts.markov | {
        "projector_type": "dspark",
        "mask_token_id": facts.mask,
        "target_layer_ids": [tap - 1 for tap in facts.taps],
    }
    if facts.causal is not None:
        inner["causal"] = facts.causal
    config = facts.backbone | {
        "architectures": ["DSparkDraftModel"],
        "num_target_layers": facts.target_layers,
        "block_size": facts.depth,
        "dflash_config": inner,
    }
    return config if facts.draft_vocab is None else config | {"draft_vocab_size": facts.draft_vocab}


def _speculators(facts: _Facts) -> Config:
    proposal = {"proposal_type": "greedy", "speculative_tokens": facts.depth, "accept_tolerance": 0.0}
    config: Config = {
        "architectures": ["DFlashDraftModel" if facts.family == "dflash" else "DSparkDraftModel"],
        "speculators_model_type": facts.family,
        "speculators_version": "0.9.0",
        "speculators_config": {
            "algorithm": facts.family,
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": {"name_or_path": None, "architectures": ["LlamaForCausalLM"]},
        },
        "transformer_layer_config": facts.backbone,
        "draft_vocab_size": facts.draft_vocab or facts.backbone["vocab_size"],
        "target_hidden_size": None,
        "aux_hidden_state_layer_ids": list(facts.taps),
        "block_size": facts.depth if facts.layout == "anchor" else facts.depth + 1,
        "mask_token_id": facts.mask,
        "sample_from_anchor": facts.layout == "anchor",
        "sliding_window_non_causal": not facts.causal if facts.causal is not None else True,
        "tie_word_embeddings": False,
    }
    return config if facts.family == "dflash" else config | facts.markov
