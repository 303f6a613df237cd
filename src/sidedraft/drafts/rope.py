"""Rotary position embedding (arXiv 2104.09864), half-split, at absolute positions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from sidedraft.drafts.configs import RopeConfig


@dataclass(frozen=True, slots=True)
class Rope:
    """Tables for `rotate`. One instance serves all layers of a draft."""

    frequencies: Tensor
    """float32 [head_dim / 2], in radians a position"""
    scale: float
    """Multiplies cosines and sines."""

    def tables(self, positions: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Cosines and *signed* sines for `rotate`: positions int64 [...] to two [..., head_dim].

        Angles are computed in fp32, as the models were trained with.
        """
        angles = positions.unsqueeze(-1).to(torch.float32) * self.frequencies
        cos, sin = angles.cos() * self.scale, angles.sin() * self.scale
        return torch.cat((cos, cos), dim=-1).to(dtype), torch.cat((-sin, sin), dim=-1).to(dtype)


def build_rope(config: RopeConfig, head_dim: int, device: torch.device) -> Rope:
    return Rope(inverse_frequencies(config, head_dim).to(device), config.attention_factor)


def rotate(x: Tensor, cos: Tensor, signed_sin: Tensor) -> Tensor:
    """x: [..., head_dim]; cos and signed_sin broadcast against it.

    Rolling by half swaps the halves; the sign that half-split rotation needs is in the sines.
    """
    return torch.addcmul(x * cos, x.roll(x.shape[-1] // 2, dims=-1), signed_sin)


def inverse_frequencies(config: RopeConfig, head_dim: int) -> Tensor:
    """float32 [head_dim / 2], in radians a position."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    plain = 1.0 / config.theta**exponents
    if config.kind == "linear":
        return plain / config.factor
    if config.kind == "llama3":
        return _llama3(plain, config)
    if config.kind == "yarn":
        return _yarn(plain, config, head_dim)
    return plain


def _llama3(plain: Tensor, config: RopeConfig) -> Tensor:
    """Llama 3.1: dimensions that turn seldom within the old context are stretched, those that often do
    kept, those between mixed."""
    turns = config.original_max_position * plain / (2 * math.pi)
    low, high = config.low_freq_factor, config.high_freq_factor
    keep = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return plain * keep + plain / config.factor * (1.0 - keep)


def _yarn(plain: Tensor, config: RopeConfig, head_dim: int) -> Tensor:
    """arXiv 2309.00071, section 3.2: a ramp over dimensions between those that turn `beta_fast` times within
    the old context (kept) and those that turn `beta_slow` times (stretched)."""

    def dimension(turns: float) -> float:
        length = config.original_max_position / (turns * 2 * math.pi)
        return head_dim * math.log(length) / (2 * math.log(config.theta))

    low, high = dimension(config.beta_fast), dimension(config.beta_slow)
    if config.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    span = high - low if high != low else 0.001
    stretch = ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / span).clamp(0.0, 1.0)
    return plain * (1.0 - stretch) + plain / config.factor * stretch
