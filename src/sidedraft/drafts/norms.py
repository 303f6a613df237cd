"""Root-mean-square norm, the only norm of these models."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x / sqrt(mean(x^2) + eps) * weight over the last dimension (arXiv 1910.07467), the mean in fp32.

    x: [..., d]; weight: [d], or [..., d] to give each head its own.
    """
    if weight.dim() == 1:
        return F.rms_norm(x, (x.shape[-1],), weight, eps)
    return F.rms_norm(x, (x.shape[-1],), None, eps) * weight
