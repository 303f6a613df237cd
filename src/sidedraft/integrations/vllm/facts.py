"""What this engine tells every draft server about its target and its draft."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from sidedraft.drafts.configs import DraftConfig, read_config
from sidedraft.drafts.errors import CheckpointError
from sidedraft.drafts.projection import ContextProjection
from sidedraft.integrations.vllm.config import ConfigurationError, VllmSettings
from sidedraft.settings import SettingsError
from sidedraft.targets.facts import read_target_facts
from sidedraft.verifier.encoding import offered, projection_for
from sidedraft.verifier.facts import VerifierFacts
from sidedraft.wire.messages import DraftFacts, TargetFacts


def verifier_facts(
    vllm_config: Any, settings: VllmSettings, device: torch.device | None = None
) -> VerifierFacts:
    """Of the draft, only its config.json is read, and for projected rows two tensors, onto `device`: the
    target's, the CPU if None.

    Raises:
        ConfigurationError: the draft cannot be what vLLM is configured for.
    """
    model, speculative = vllm_config.model_config, vllm_config.speculative_config
    draft = _draft(speculative)
    parallel = vllm_config.parallel_config
    kinds = offered(settings.row_formats, model.dtype)
    ranks = parallel.data_parallel_size > 1 or parallel.data_parallel_index > 0
    return VerifierFacts(
        target=_target(vllm_config),
        draft=DraftFacts(family=draft.family, layout=draft.layout.value, max_depth=draft.max_depth),
        max_position=model.max_model_len,
        label=f"{settings.label}-{parallel.data_parallel_index}" if ranks else settings.label,
        namespace=settings.namespace,
        row_formats=kinds,
        projection=_projection(speculative, kinds, model.dtype, device or torch.device("cpu")),
        features=settings.features,
    )


def _projection(
    speculative: Any, kinds: Sequence[str], dtype: torch.dtype, device: torch.device
) -> ContextProjection | None:
    given = speculative.draft_model_config
    try:
        return projection_for(kinds, _folder(given.model, given.revision), dtype=dtype, device=device)
    except (CheckpointError, OSError) as error:
        expected = f"plain formats, or a folder with the draft's weights ({error})"
        raise _wrong("row_formats", ", ".join(kinds), expected) from None


def _draft(speculative: Any) -> DraftConfig:
    given = speculative.draft_model_config
    folder = _folder(given.model, given.revision)
    try:
        draft = read_config(folder)
    except (CheckpointError, OSError) as error:
        raise _wrong(
            "speculative_config.model", given.model, f"a folder with a draft's config ({error})"
        ) from None
    if draft.family != speculative.method:
        raise _wrong("speculative_config.method", speculative.method, f"{draft.family}, as {folder} says")
    if speculative.num_speculative_tokens > draft.max_depth:
        field, most = "speculative_config.num_speculative_tokens", draft.max_depth
        raise _wrong(
            field, speculative.num_speculative_tokens, f"at most {most}, all that this draft proposes"
        )
    return draft


def _target(vllm_config: Any) -> TargetFacts:
    """Sizes and taps as the engine has them; digests from the checkpoint's files where they still hold."""
    from vllm.v1.worker.gpu.spec_decode.eagle.eagle3_utils import get_eagle3_aux_layers_from_config

    model, speculative = vllm_config.model_config, vllm_config.speculative_config
    # What vLLM will capture by: an aux id is the layer whose input is taken, as ours is.
    taps = get_eagle3_aux_layers_from_config(speculative)
    if not taps:
        raise _wrong(
            "speculative_config.model", speculative.model, "a draft whose config names target layers"
        )
    taps = tuple(sorted(taps))
    try:
        file = read_target_facts(_folder(model.model, model.revision), taps)
        digests = (None if model.hf_overrides else file.model_digest, file.vocab_digest)
    except (OSError, ValueError):  # in a form that vLLM reads and we do not: the identity is partial
        digests = (None, None)
    return TargetFacts(
        taps=taps,
        hidden_size=model.get_hidden_size(),
        vocab_size=model.get_vocab_size(),
        model_digest=digests[0],
        vocab_digest=digests[1],
    )


def _folder(model: str, revision: str | None) -> Path:
    """Where the files of a model are; of a name on a hub, those that vLLM has fetched."""
    folder = Path(model)
    if folder.is_dir():
        return folder
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(model, "config.json", revision=revision)).parent


def _wrong(field: str, value: object, expected: str) -> ConfigurationError:
    return ConfigurationError([SettingsError(field, value, expected)])
