"""Tensor names: the one spelling used inside, and the shapes a config promises.

Names have no prefix; `model.` before them and the aliases some trainers write are taken off.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from sidedraft.drafts.configs import DraftConfig
from sidedraft.drafts.errors import CheckpointError

EMBEDDING = "embed_tokens.weight"
HEAD = "lm_head.weight"
D2T = "d2t"

ALIASES = {
    "midlayer.": "layers.0.",
    "encoder.fc.": "fc.",
    "encoder.output_norm_enc.": "hidden_norm.",
}
IGNORED = ("t2d", "verifier_norm.weight", "verifier_lm_head.weight", "rotary_emb.inv_freq")
"""Of training only, or computed from the config."""


def canonical_names(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Canonical name to stored name; two stored names that mean one tensor are refused."""
    table: dict[str, str] = {}
    for stored in sorted(names):
        name = stored.removeprefix("model.")
        for alias, meant in ALIASES.items():
            if name.startswith(alias):
                name = meant + name.removeprefix(alias)
        if name in IGNORED:
            continue
        if name in table:
            raise CheckpointError(
                folder, f"tensor {name}", found=f"{table[name]} and {stored}", expected="one of them"
            )
        table[name] = stored
    return table


def expected_shapes(config: DraftConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor the draft must ship, by canonical name. Embedding, head and d2t are not among them: each
    may come from elsewhere."""
    backbone = config.backbone
    H, inner = backbone.hidden_size, backbone.intermediate_size
    query, kv = backbone.heads * backbone.head_dim, backbone.kv_heads * backbone.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (H, len(config.taps) * config.target_hidden_size),
        "hidden_norm.weight": (H,),
        "norm.weight": (H,),
    }
    projections = {"q_proj": (query, H), "k_proj": (kv, H), "v_proj": (kv, H), "o_proj": (H, query)}
    for layer in range(backbone.layers):
        at = f"layers.{layer}."
        shapes[at + "input_layernorm.weight"] = (H,)
        shapes[at + "post_attention_layernorm.weight"] = (H,)
        for name, shape in projections.items():
            shapes[f"{at}self_attn.{name}.weight"] = shape
            if backbone.attention_bias:
                shapes[f"{at}self_attn.{name}.bias"] = shape[:1]
        shapes[at + "self_attn.q_norm.weight"] = (backbone.head_dim,)
        shapes[at + "self_attn.k_norm.weight"] = (backbone.head_dim,)
        shapes[at + "mlp.gate_proj.weight"] = (inner, H)
        shapes[at + "mlp.up_proj.weight"] = (inner, H)
        shapes[at + "mlp.down_proj.weight"] = (H, inner)
    return shapes | _head_shapes(config)


def _head_shapes(config: DraftConfig) -> dict[str, tuple[int, ...]]:
    markov = config.markov
    shapes: dict[str, tuple[int, ...]] = {}
    if markov is not None and markov.rank:
        shapes["markov_head.markov_w1.weight"] = (config.backbone.vocab_size, markov.rank)
        shapes["markov_head.markov_w2.weight"] = (config.draft_vocab_size, markov.rank)
    if markov is not None and markov.confidence:
        width = config.backbone.hidden_size + (markov.rank if markov.confidence_with_markov else 0)
        shapes["confidence_head.proj.weight"] = (1, width)
        shapes["confidence_head.proj.bias"] = (1,)
    return shapes
