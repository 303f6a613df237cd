"""A trained module as a checkpoint folder in the DeepSpec format of DSpark."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file

from sidedraft.training.module import DSparkModule
from sidedraft.training.vocabulary import DraftVocabulary


@torch.no_grad()
def round_weights(module: DSparkModule) -> None:
    """Fold the scale of the taps into `fc` and round all to bfloat16: what is measured then is what ships."""
    module.fc.weight *= module.tap_scale
    module.tap_scale.fill_(1.0)
    for parameter in module.parameters():
        parameter.copy_(parameter.bfloat16())


def export(module: DSparkModule, vocabulary: DraftVocabulary, folder: Path) -> Path:
    """Write config.json and model.safetensors (bfloat16) of a module after `round_weights` to `folder`.

    Embedding and head are the target's and are not written: a server takes the head's rows through `d2t`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: p.detach().bfloat16().contiguous() for name, p in module.named_parameters()}
    tensors["d2t"] = vocabulary.d2t
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(_config(module, vocabulary), indent=2) + "\n")
    return folder


def _config(module: DSparkModule, vocabulary: DraftVocabulary) -> dict[str, object]:
    sizes = module.sizes
    return {
        "architectures": ["Qwen3DSparkModel"],
        "model_type": "qwen3",
        "hidden_size": sizes.hidden,
        "intermediate_size": sizes.inner,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_dim,
        "hidden_act": "silu",
        "attention_bias": False,
        "rms_norm_eps": sizes.eps,
        "rope_theta": sizes.rope_theta,
        "rope_parameters": {"rope_type": "default", "rope_theta": sizes.rope_theta},
        "max_position_embeddings": sizes.max_position,
        "vocab_size": sizes.vocab,
        "draft_vocab_size": len(vocabulary.target_ids),
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
        # Layer outputs: one less than the aux id that taps them.
        "target_layer_ids": [tap - 1 for tap in sizes.taps],
        "num_target_layers": sizes.target_layers,
        "target_hidden_size": sizes.hidden,
        "block_size": sizes.depth,
        "mask_token_id": sizes.mask_token,
        "sample_from_anchor": True,
        "markov_rank": sizes.markov_rank,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
    }
