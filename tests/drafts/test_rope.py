"""Rotary embedding against the implementation that the checkpoints were trained with."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from sidedraft.drafts.configs import RopeConfig
from sidedraft.drafts.configs.fields import Fields
from sidedraft.drafts.configs.rope import read_rope
from sidedraft.drafts.rope import build_rope, inverse_frequencies, rotate

KINDS: list[dict[str, Any]] = [
    {"rope_type": "linear", "factor": 4.0},
    {
        "rope_type": "llama3",
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 256,
    },
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
    {
        "rope_type": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": 64,
        "beta_fast": 16,
        "beta_slow": 2,
    },
    {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512, "attention_factor": 1.5},
    {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "truncate": False},
    {
        "rope_type": "yarn",
        "factor": 40.0,
        "original_max_position_embeddings": 4096,
        "mscale": 0.7,
        "mscale_all_dim": 1.0,
    },
]


@pytest.mark.parametrize("parameters", KINDS)
def test_frequencies_and_factor_equal_transformers(parameters: dict[str, Any], tmp_path) -> None:
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    parameters = parameters | {"rope_theta": 50000.0}
    reference = transformers.Qwen3Config(
        hidden_size=256,
        num_attention_heads=4,
        head_dim=64,
        max_position_embeddings=4096,
        rope_parameters=dict(parameters),
    )
    expected, factor = ROPE_INIT_FUNCTIONS[parameters["rope_type"]](reference, torch.device("cpu"))
    config = read_rope(Fields({"rope_parameters": parameters}, tmp_path), 4096)
    torch.testing.assert_close(inverse_frequencies(config, 64), expected, rtol=1e-5, atol=1e-9)
    assert config.attention_factor == pytest.approx(factor)


def test_rotation_turns_pairs_of_halves_by_the_angle() -> None:
    """Dimension i and i + d/2 are a complex number, turned by position x frequency."""
    config = RopeConfig("default", 10000.0)
    positions = torch.tensor([[0, 3], [77, 1000]])
    x = torch.randn(2, 2, 5, 8)
    cos, sin = build_rope(config, 8, torch.device("cpu")).tables(positions, torch.float32)
    turned = rotate(x, cos.unsqueeze(2), sin.unsqueeze(2))
    angle = positions[..., None, None] * inverse_frequencies(config, 8)
    number = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(torch.ones_like(angle), angle)
    torch.testing.assert_close(turned, torch.cat((number.real, number.imag), dim=-1), atol=1e-5, rtol=0)


def test_the_attention_factor_scales_at_every_position() -> None:
    cpu = torch.device("cpu")
    plain = build_rope(RopeConfig("default", 1e4), 8, cpu).tables(torch.tensor([0, 5]), torch.float32)
    scaled = build_rope(RopeConfig("default", 1e4, attention_factor=1.25), 8, cpu)
    for one, other in zip(plain, scaled.tables(torch.tensor([0, 5]), torch.float32), strict=True):
        torch.testing.assert_close(one * 1.25, other)
