"""The golden cases under tests/golden, made by tools/make_golden.py with the public implementations."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

FOLDER = Path(__file__).resolve().parent.parent / "golden"
TARGET = FOLDER / "target"
TOLERANCE = 2e-4
"""In fp32, of any logit or confidence."""


@dataclass(frozen=True)
class GoldenStep:
    """Rows accepted since the last step, then a proposal."""

    first: int
    """Position of the first new row."""
    aux: Tensor
    """[n, row_width]"""
    anchor: int
    tokens: Tensor
    """int64 [depth], target ids"""
    logits: Tensor
    """[depth, draft_vocab]"""
    confidence: Tensor | None
    """[depth]"""

    @property
    def position(self) -> int:
        """The anchor's."""
        return self.first + len(self.aux)


@dataclass(frozen=True)
class GoldenCase:
    name: str
    draft: Path
    origin: str
    steps: list[GoldenStep]


def golden_names() -> list[str]:
    return sorted(file.parent.name for file in FOLDER.glob("*/steps.safetensors"))


def golden_case(name: str) -> GoldenCase:
    with safe_open(FOLDER / name / "steps.safetensors", framework="pt") as file:
        values = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a dict
        origin = file.metadata()["origin"]
    ends = values["starts"].tolist()
    steps = [
        GoldenStep(
            first=first,
            aux=values["aux"][first:end],
            anchor=int(values["anchors"][i]),
            tokens=values["tokens"][i],
            logits=values["logits"][i],
            confidence=values["confidence"][i] if "confidence" in values else None,
        )
        for i, (first, end) in enumerate(zip([0, *ends], ends, strict=False))
    ]
    return GoldenCase(name, FOLDER / name / "draft", origin, steps)
