"""What a verifier says of itself: the content of its hello."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

import sidedraft
from sidedraft.drafts.projection import ContextProjection
from sidedraft.settings import Settings, SettingsError, VerifierSettings
from sidedraft.wire.messages import DraftFacts, Hello, TargetFacts
from sidedraft.wire.rows import FORMATS, KINDS, of_kind


class VerifierFacts(Settings, frozen=True, kw_only=True):
    """The target, the draft and this process, as they stay for a drafter's life."""

    target: TargetFacts
    """With the taps as this engine captures them; the server compares them with its draft's."""
    draft: DraftFacts
    max_position: Annotated[int, Meta(ge=1, lt=2**31, description="a count of positions, at least 1")]
    """Greatest position of an anchor: the engine's max_model_len."""
    label: str = "verifier"
    """Shown in the server's status."""
    namespace: str = "default"
    """Verifiers of one namespace share context."""
    row_formats: tuple[str, ...] = ("f32", "bf16", "f16")
    """Offered kinds of row formats (`wire.rows.KINDS`), best first: naturally the dtype that the target
    computes in, or what `encoding.offered` makes of an operator's preference."""
    projection: ContextProjection | None = None
    """The draft's context projection on the rows' device, for projected formats."""
    features: tuple[str, ...] = ()

    def check(self) -> None:
        if not self.row_formats:
            raise SettingsError("row_formats", self.row_formats, "at least one format")
        for name in self.row_formats:
            if name not in KINDS:
                raise SettingsError("row_formats", name, f"one of {', '.join(KINDS)}")
            if name not in FORMATS and self.projection is None:
                raise SettingsError("row_formats", name, "a plain format, where there is no projection")

    @property
    def row_width(self) -> int:
        """Values of one aux row: taps x the target's hidden size."""
        return len(self.target.taps) * self.target.hidden_size

    def hello(self, settings: VerifierSettings) -> Hello:
        """The first message of every session."""
        tied = None if self.projection is None else self.projection.facts
        return Hello(
            software=f"sidedraft {sidedraft.__version__}",
            verifier=self.label,
            namespace=self.namespace,
            target=self.target,
            draft=self.draft,
            row_formats=tuple(of_kind(kind, tied).name for kind in self.row_formats),
            max_depth=min(settings.max_depth, self.draft.max_depth),
            max_position=self.max_position,
            features=self.features,
            strict_identity=settings.strict_identity,
        )
