"""What else than tokens a request's context depends on, from vLLM's new-request data."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class Identity:
    """Read once, when a request is opened on the server."""

    context_key: bytes = b""
    """Digest of adapter and images; empty for plain text, which so shares its context whatever else runs."""
    private: bool = False
    """Nothing that is known here determines the context: it is shared with nobody."""


UNKNOWN = Identity(private=True)
"""Of a request whose data was not seen."""


def identify(new_request: Any) -> Identity:
    """The identity of a `vllm.v1.core.sched.output.NewRequestData`.

    vLLM's `cache_salt` is not in it: it never leaves the scheduler.
    """
    embedded = new_request.prompt_embeds is not None or not all(new_request.prompt_is_token_ids or ())
    adapter = new_request.lora_request
    # An adapter that is loaded anew under its old name has other weights, and nothing tells which.
    if embedded or (adapter is not None and adapter.load_inplace):
        return UNKNOWN
    facts: list[object] = []
    if adapter is not None:
        facts.append(("adapter", adapter.lora_name, adapter.lora_path, adapter.lora_int_id))
    for feature in new_request.mm_features or ():
        place = feature.mm_position
        facts.append((feature.modality, feature.identifier, place.offset, place.length))
    if not facts:
        return Identity()
    return Identity(blake2b(repr(facts).encode(), digest_size=_KEY_BYTES, person=b"sidedraft-vllm").digest())
