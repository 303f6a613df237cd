"""The part of make_golden.py that runs beside the reference packages: tiny drafts and what they propose.

Writes, for every case, `draft/` (saved by the reference itself) and `steps.safetensors`, and one `target/`
with the embedding and head that all cases share. Steps are what an engine sees: rows of accepted positions,
then an anchor, again and again.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import speculators.models.dflash.core as speculators_core
import torch
from dflash.model import DFlashDraftModel, _crop_to, _make_cache
from safetensors.torch import save_file
from speculators.config import SpeculatorsConfig, VerifierConfig
from speculators.models.dflash.config import DFlashSpeculatorConfig
from speculators.models.dflash.core import DFlashDraftModel as SpeculatorsDFlash
from speculators.models.dspark.config import DSparkSpeculatorConfig
from speculators.models.dspark.core import DSparkDraftModel
from speculators.proposals.greedy import GreedyTokenProposalConfig
from torch import Tensor
from transformers import Qwen3Config

VOCAB, HIDDEN, LAYERS, DRAFT_VOCAB, MASK = 61, 32, 2, 20, 60
TARGET_LAYERS = 12
STEPS = (9, 1, 4, 2, 6)
"""Rows accepted before each proposal: a prompt, then accepted drafts and a bonus token each time."""
BLOCK = 6
LEAST_GAP = 2e-3
"""Between a row's two greatest logits, so that equal argmax cannot be luck."""

Steps = dict[str, Tensor]


def backbone(**changes: Any) -> Qwen3Config:
    settings: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "intermediate_size": 48,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "rms_norm_eps": 1e-6,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "layer_types": ["full_attention"] * LAYERS,
        "max_position_embeddings": 4096,
        "attention_bias": False,
        "tie_word_embeddings": False,
    }
    return Qwen3Config(**settings | changes)


def randomize(model: torch.nn.Module) -> None:
    """Weights large enough that every part of the formula shows in the logits."""
    for name, weight in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(weight, 0.5, 1.5)
        else:
            torch.nn.init.normal_(weight, std=0.3)


def target_tensors() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    embedding = torch.randn(VOCAB, HIDDEN, generator=generator)
    return embedding, torch.randn(VOCAB, HIDDEN, generator=generator) * 0.3


def dflash_case(folder: Path, *, draft: dict[str, Any] | None = None, **changes: Any) -> Steps:
    """With the package `dflash`: an incremental cache, cropped to the accepted rows after each block."""
    draft = draft or {}
    config = backbone(**changes)
    config.num_target_layers = TARGET_LAYERS
    config.dflash_config = {
        "mask_token_id": MASK,
        "target_layer_ids": [1, 5, 9],
        "block_size": BLOCK,
        **draft,
    }
    model = DFlashDraftModel(config).eval()
    randomize(model)
    model.save_pretrained(folder)
    embedding, head = target_tensors()
    scale = draft.get("input_embedding_scale", 1.0)
    cache, start, depth, out = _make_cache(config), 0, BLOCK - 1, []
    for count in STEPS:
        aux = torch.randn(count, 3 * HIDDEN)
        start += count
        anchor = int(torch.randint(0, MASK, (1,)))
        block = torch.tensor([anchor] + [MASK] * depth)
        hidden = model(
            target_hidden=aux[None],
            noise_embedding=(embedding[block] * scale)[None],
            position_ids=torch.arange(start - count, start + BLOCK)[None],
            past_key_values=cache,
            use_cache=True,
        )[0]
        _crop_to(cache, start)
        logits = model.compute_logits(hidden[-depth:], lambda rows: rows @ head.T)
        out.append((aux, anchor, start, logits.argmax(-1), logits, None))
    return collect(out)


def speculators_case(
    folder: Path, family: str, *, sample_from_anchor: bool, draft_vocab: int = VOCAB
) -> Steps:
    """With the package `speculators`: the training forward, with a single block anchored where we ask."""
    layer = backbone()
    layer._attn_implementation = "eager"
    depth = BLOCK if sample_from_anchor else BLOCK - 1
    settings: dict[str, Any] = {
        "transformer_layer_config": layer,
        "draft_vocab_size": draft_vocab,
        "block_size": BLOCK,
        "aux_hidden_state_layer_ids": [2, 6, 10],
        "mask_token_id": MASK,
        "sample_from_anchor": sample_from_anchor,
        "speculators_config": SpeculatorsConfig(
            algorithm=family,
            proposal_methods=[GreedyTokenProposalConfig(speculative_tokens=depth)],
            default_proposal_method="greedy",
            verifier=VerifierConfig(name_or_path=None, architectures=["LlamaForCausalLM"]),
        ),
    }
    if family == "dspark":
        model = DSparkDraftModel(DSparkSpeculatorConfig(markov_rank=8, **settings)).eval()
    else:
        model = SpeculatorsDFlash(DFlashSpeculatorConfig(**settings)).eval()
    randomize(model)
    embedding, head = target_tensors()
    ids = torch.arange(VOCAB)
    if draft_vocab != VOCAB:
        ids = torch.sort(torch.randperm(VOCAB)[:draft_vocab]).values
        chosen = torch.zeros(VOCAB, dtype=torch.bool)
        chosen[ids] = True
        model.load_vocab_mappings(chosen, ids - torch.arange(draft_vocab))
    model.embed_tokens.weight.data.copy_(embedding)
    model.lm_head.weight.data.copy_(head[ids])
    model.save_pretrained(folder)

    total = sum(STEPS)
    tokens = torch.randint(0, MASK, (1, total + BLOCK))
    aux = torch.randn(1, total + BLOCK, 3 * HIDDEN)
    start, out = 0, []
    for count in STEPS:
        start += count
        out.append(
            (
                aux[0, start - count : start],
                int(tokens[0, start]),
                start,
                *block_of(model, aux, tokens, start, depth, ids),
            )
        )
    return collect(out)


def block_of(
    model: Any, aux: Tensor, tokens: Tensor, anchor: int, depth: int, ids: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Tokens, logits and confidences of one block. The chain feeds the reference's heads their choices."""
    speculators_core.select_anchors = lambda mask, n, block: (torch.tensor([anchor]), torch.tensor([True]))
    length = tokens.shape[1]
    hidden, logits, *_ = model._backbone_forward(
        aux,
        tokens,
        torch.ones(1, length),
        torch.randn(1, length, HIDDEN),
        torch.zeros(1, length, dtype=torch.long),
        None,
        max_anchors=1,
    )
    hidden, logits = hidden[0, -depth:], logits[0, -depth:].clone()
    if not hasattr(model, "markov_head"):
        return ids[logits.argmax(-1)], logits, None
    chain, confidence = [int(tokens[0, anchor])], []
    for step in range(depth):
        previous = torch.tensor([[chain[-1]]])
        row = hidden[step][None, None]
        logits[step] += model.markov_head.block_bias(prev_token_ids=previous, hidden_states=row)[0, 0]
        features = torch.cat([row, model.markov_head.prev_embeddings(previous)], dim=-1)
        confidence.append(model.confidence_head(features).sigmoid().reshape(()))
        chain.append(int(ids[logits[step].argmax()]))
    return torch.tensor(chain[1:]), logits, torch.stack(confidence)


def collect(steps: list[tuple[Any, ...]]) -> Steps:
    aux, anchors, starts, tokens, logits, confidence = zip(*steps, strict=True)
    top = torch.stack(logits).topk(2).values
    gap = float((top[..., 0] - top[..., 1]).min())
    if gap < LEAST_GAP:
        raise RuntimeError(f"two logits are only {gap:.1e} apart: take another seed")
    found = {
        "aux": torch.cat(aux),
        "anchors": torch.tensor(anchors),
        "starts": torch.tensor(starts),
        "tokens": torch.stack(tokens),
        "logits": torch.stack(logits),
    }
    return found if confidence[0] is None else found | {"confidence": torch.stack(confidence)}


YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 16,
}
MIXED = ["sliding_attention", "full_attention"]

CASES: dict[str, tuple[str, int, Callable[[Path], Steps]]] = {
    "dflash_full": ("dflash", 1, lambda f: dflash_case(f)),
    "dflash_sliding": (
        "dflash",
        2,
        lambda f: dflash_case(
            f, layer_types=MIXED, sliding_window=4, use_sliding_window=True, is_causal=False
        ),
    ),
    "dflash_sliding_causal": (
        "dflash",
        3,
        lambda f: dflash_case(f, layer_types=MIXED, sliding_window=5, use_sliding_window=True),
    ),
    "dflash_full_causal": ("dflash", 4, lambda f: dflash_case(f, is_causal=True)),
    "dflash_scaled": (
        "dflash",
        5,
        lambda f: dflash_case(
            f,
            rope_parameters=YARN,
            rms_norm_eps=1e-2,
            attention_bias=True,
            draft={"input_embedding_scale": 0.5, "output_multiplier": 1.5, "final_logit_softcapping": 9.0},
        ),
    ),
    "dflash_reduced": (
        "speculators",
        6,
        lambda f: speculators_case(f, "dflash", sample_from_anchor=False, draft_vocab=DRAFT_VOCAB),
    ),
    "dspark_anchor": ("speculators", 7, lambda f: speculators_case(f, "dspark", sample_from_anchor=True)),
    "dspark_bonus": ("speculators", 8, lambda f: speculators_case(f, "dspark", sample_from_anchor=False)),
    "dspark_reduced": (
        "speculators",
        9,
        lambda f: speculators_case(f, "dspark", sample_from_anchor=True, draft_vocab=DRAFT_VOCAB),
    ),
}


def write_target(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "vocab_size": VOCAB,
        "num_hidden_layers": TARGET_LAYERS,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    embedding, head = target_tensors()
    save_file({"model.embed_tokens.weight": embedding, "lm_head.weight": head}, folder / "model.safetensors")


@torch.no_grad()
def main() -> None:
    out, versions = Path(sys.argv[1]), dict(item.split("==") for item in sys.argv[2:])
    torch.set_num_threads(1)
    write_target(out / "target")
    for name, (package, seed, make) in CASES.items():
        folder = out / name
        shutil.rmtree(folder, ignore_errors=True)
        torch.manual_seed(seed)
        steps = make(folder / "draft")
        (folder / "draft" / "config.py").unlink(missing_ok=True)  # speculators saves its own source beside it
        origin = f"{package} {versions[package]}, torch {torch.__version__}, seed {seed}"
        save_file(steps, folder / "steps.safetensors", metadata={"origin": origin})
        print(f"{name}: {origin}")
    for file in out.rglob("*.safetensors"):
        file.chmod(0o644)


if __name__ == "__main__":
    main()
