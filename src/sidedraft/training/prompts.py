"""The prompts a draft is trained and measured on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec


class PromptSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One kind of prompt. The text of prompt i is `prefix + prompts[i] + suffix`, special tokens included.

    The shared prefix is run once for all prompts of a set.
    """

    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    """Also the name of a folder."""
    prefix: str
    prompts: tuple[str, ...]
    suffix: str = ""


def read_prompts(path: Path) -> PromptSet:
    """A JSON object with the fields of `PromptSet`. Raises ValueError naming the file and what is wrong."""
    try:
        found = msgspec.json.decode(path.read_bytes(), type=PromptSet)
    except OSError as error:
        raise ValueError(f"prompts {path}: {error.strerror or error}") from error
    except msgspec.MsgspecError as error:
        raise ValueError(f"prompts {path}: {error}") from error
    if not found.prefix or not found.prompts or not all(found.prompts):
        raise ValueError(
            f"prompts {path}: prefix and every prompt must have text, and there must be a prompt"
        )
    return found
