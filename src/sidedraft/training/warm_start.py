"""Where training starts: the target's own weights wherever they fit (docs/training.md explains the choices).

The context path begins as the target's late residual stream, read through the late layers' own keys and
values, plus the early stream turned by a random rotation, so that both share one width without hiding each
other. The query path begins near the raw embeddings, so its norms and gates come from the first layers and
all that writes to its stream starts small. Copying whole late layers is bad: they expect a late stream.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from sidedraft.targets.tapped import TappedTarget
from sidedraft.training.features import Features
from sidedraft.training.module import DSparkModule

SMALL = 0.02
FC_NOISE = 0.005
MARKOV_NOISE = 0.3
NORM_SHARE = 0.3
"""Of the target's final norm: a smaller one keeps the first logits from being sure of nonsense."""
FIRST = ("mlp.gate_proj", "mlp.up_proj", "input_layernorm", "post_attention_layernorm")
"""What a layer takes from the target's first layers."""


@torch.no_grad()
def warm_start(module: DSparkModule, target: TappedTarget, sets: Sequence[Features], seed: int) -> None:
    """Set every parameter of `module`, and the scale of its taps from the rows in `sets`."""
    generator = torch.Generator().manual_seed(seed)
    sizes, weights = module.sizes, module.get_parameter
    for name, parameter in module.named_parameters():
        if name.endswith(("norm.weight", "layernorm.weight")):
            nn.init.ones_(parameter)
        else:
            nn.init.normal_(parameter, std=SMALL, generator=generator)
    nn.init.normal_(weights("markov_head.markov_w1.weight"), std=MARKOV_NOISE, generator=generator)
    nn.init.zeros_(weights("markov_head.markov_w2.weight"))
    nn.init.zeros_(weights("confidence_head.proj.bias"))
    module.norm.weight.copy_(NORM_SHARE * target.parameter("norm.weight"))
    size = feature_size(sets)
    module.tap_scale.copy_(1 / size)
    _start_context(module, generator)
    late = size[-sizes.hidden :]
    first_late = max(0, sizes.target_layers - max(2, sizes.layers))
    for index in range(sizes.layers):
        source = f"layers.{min(first_late + index, sizes.target_layers - 1)}"
        # What the layer's own norm would make of the stream, from its features at size 1. The context is
        # normed to size 1 with two streams in it, of which this is one.
        stream = target.parameter(f"{source}.input_layernorm.weight") * late / late.median()
        for name in ("k_proj", "v_proj"):
            matrix = target.parameter(f"{source}.self_attn.{name}.weight") * stream
            weights(f"layers.{index}.self_attn.{name}.weight").copy_(2**0.5 * matrix)
        for name in FIRST:
            matrix = target.parameter(f"layers.{min(index, sizes.target_layers - 1)}.{name}.weight")
            weights(f"layers.{index}.{name}.weight").copy_(matrix)


def _start_context(module: DSparkModule, generator: torch.Generator) -> None:
    """The last tap as it is and the first one rotated; a single tap stays as it is."""
    H = module.sizes.hidden
    nn.init.normal_(module.fc.weight, std=FC_NOISE, generator=generator)
    module.fc.weight[:, -H:] += torch.eye(H)
    if len(module.sizes.taps) > 1:
        rotation = torch.linalg.qr(torch.randn(H, H, generator=generator))[0]
        module.fc.weight[:, :H] += rotation


def feature_size(sets: Sequence[Features]) -> Tensor:
    """Root mean square of every aux feature, [row_width], over all rows but the first position's.

    Features differ by a factor of several hundred, and an optimiser that moves every weight as fast would
    learn from the few large ones only. The first position is left out: models keep huge values there.
    """
    total = torch.zeros(sets[0].prefix_aux.shape[1], dtype=torch.float64)
    rows = 0
    for one in sets:
        for aux in (one.prefix_aux[1:], *(t.aux for t in one.trajectories)):
            total += aux.double().square().sum(0)
            rows += len(aux)
    return (total / max(1, rows)).sqrt().clamp_min(1e-3).float()
