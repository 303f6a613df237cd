"""Where training starts: the target's own weights wherever they fit (facts/tiny-drafts.md, "Recipe").

The context path begins as the target's late residual stream read through its late keys and values. The query
path begins near the raw embeddings, so its norms and gates come from the first layers and everything that
writes to its stream starts small. Copying whole late layers is bad: they expect a late stream.
"""

from __future__ import annotations

import torch
from torch import nn

from sidedraft.targets.tapped import TappedTarget
from sidedraft.training.module import DSparkModule

SMALL = 0.02
FC_NOISE = 0.005
MARKOV_NOISE = 0.3
NORM_SHARE = 0.3
"""Of the target's final norm: a smaller one keeps the first logits from being sure of nonsense."""

LATE = ("self_attn.k_proj", "self_attn.v_proj")
EARLY = ("mlp.gate_proj", "mlp.up_proj", "input_layernorm", "post_attention_layernorm")


@torch.no_grad()
def warm_start(module: DSparkModule, target: TappedTarget, seed: int) -> None:
    """Set every parameter of `module`."""
    generator = torch.Generator().manual_seed(seed)
    sizes = module.sizes
    for name, parameter in module.named_parameters():
        if name.endswith(("norm.weight", "layernorm.weight")):
            nn.init.ones_(parameter)
        else:
            nn.init.normal_(parameter, std=SMALL, generator=generator)
    set_ = module.get_parameter
    nn.init.normal_(module.fc.weight, std=FC_NOISE, generator=generator)
    module.fc.weight[:, -sizes.hidden :] += torch.eye(sizes.hidden)
    nn.init.normal_(set_("markov_head.markov_w1.weight"), std=MARKOV_NOISE, generator=generator)
    nn.init.zeros_(set_("markov_head.markov_w2.weight"))
    nn.init.zeros_(set_("confidence_head.proj.bias"))
    late = max(0, sizes.target_layers - max(2, sizes.layers))
    module.hidden_norm.weight.copy_(target.parameter(f"layers.{late}.input_layernorm.weight"))
    module.norm.weight.copy_(NORM_SHARE * target.parameter("norm.weight"))
    deepest = sizes.target_layers - 1
    for index in range(sizes.layers):
        for name in LATE:
            source = target.parameter(f"layers.{min(late + index, deepest)}.{name}.weight")
            set_(f"layers.{index}.{name}.weight").copy_(source)
        for name in EARLY:
            source = target.parameter(f"layers.{min(index, deepest)}.{name}.weight")
            set_(f"layers.{index}.{name}.weight").copy_(source)
