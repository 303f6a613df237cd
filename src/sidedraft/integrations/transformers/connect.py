"""From a loaded target and a draft's config to a `Drafter`."""

from __future__ import annotations

from pathlib import Path

from sidedraft.drafts.configs import DraftConfig
from sidedraft.settings import VerifierSettings
from sidedraft.targets.facts import read_target_facts
from sidedraft.targets.tapped import TappedTarget
from sidedraft.verifier.drafter import Drafter
from sidedraft.verifier.encoding import offered, projection_for
from sidedraft.verifier.facts import VerifierFacts
from sidedraft.wire.messages import DraftFacts


def connect(
    address: str,
    target: TappedTarget,
    target_dir: Path,
    draft: DraftConfig,
    *,
    namespace: str = "default",
    label: str = "transformers",
    settings: VerifierSettings | None = None,
    draft_dir: Path | None = None,
) -> Drafter:
    """A drafter that finds its server in the background; generation may begin at once.

    target: tapped at the draft's taps. draft: as the server's draft folder states it. draft_dir: that folder,
    needed where the settings prefer projected rows, which two of its tensors are for. A server whose draft
    differs refuses the session, and the run goes on without drafts.

    Raises SettingsError or CheckpointError for projected rows without a folder or its weights.
    """
    settings = VerifierSettings() if settings is None else settings
    weight = next(target.model.parameters())
    kinds = offered(settings.row_formats, weight.dtype)
    facts = VerifierFacts(
        target=read_target_facts(target_dir, target.taps),
        draft=DraftFacts(family=draft.family, layout=draft.layout.value, max_depth=draft.max_depth),
        max_position=target.max_position,
        label=label,
        namespace=namespace,
        row_formats=kinds,
        projection=projection_for(kinds, draft_dir, dtype=weight.dtype, device=weight.device),
    )
    return Drafter(address, facts, settings)
