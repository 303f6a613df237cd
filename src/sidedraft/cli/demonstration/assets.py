"""The demo's draft and prompts, which are not part of the wheel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec

import sidedraft
from sidedraft.cli.errors import CommandError


class Kind(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Prompts of one kind, special tokens spelled out."""

    name: str
    domain: bool
    """Whether the draft was trained for text of this kind."""
    max_new_tokens: Annotated[int, msgspec.Meta(ge=2)]
    prompts: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


@dataclass(frozen=True, slots=True)
class Assets:
    """A checked assets folder."""

    draft: Path
    kinds: tuple[Kind, ...]


def find_assets(folder: Path | None) -> Assets:
    """Read an assets folder; None means that of the checkout this package runs from."""
    home = folder if folder is not None else Path(sidedraft.__file__).resolve().parents[2] / "demo"
    if not (home / "draft" / "config.json").is_file() or not (home / "prompts.json").is_file():
        raise CommandError(
            f"no demo assets in {home}: the trained draft and the prompts are in the folder demo/ of the "
            "repository, not in the wheel; clone it and give --assets DIR, or train a draft of your own "
            "with `sidedraft train`"
        )
    try:
        kinds = msgspec.json.decode((home / "prompts.json").read_bytes(), type=tuple[Kind, ...])
    except msgspec.MsgspecError as error:
        raise CommandError(f"{home / 'prompts.json'}: {error}") from error
    return Assets(home / "draft", kinds)
