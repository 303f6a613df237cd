"""Which context each layer sees: windows, and whether a block's rows see later rows of the block."""

from __future__ import annotations

from sidedraft.drafts.configs.fields import Fields

SLIDING = "sliding_attention"
FULL = "full_attention"

Windows = tuple[int | None, ...]


def read_windows(fields: Fields, layers: int) -> Windows:
    """Per layer the rows visible, None for all.

    `layer_types` decides; `use_swa` makes every layer slide when none of them says so.
    """
    kinds = fields.texts("layer_types") or (FULL,) * layers
    if len(kinds) < layers or not set(kinds) <= {SLIDING, FULL}:
        fields.fail("layer_types", f"{layers} times {FULL} or {SLIDING}")
    kinds = kinds[:layers]
    if fields.flag_or("use_swa", False) and SLIDING not in kinds:
        kinds = (SLIDING,) * layers
    if SLIDING not in kinds:
        return (None,) * layers
    key = "swa_window_size" if fields.has("swa_window_size") else "sliding_window"
    width = fields.integer(key, low=1)
    return tuple(width if kind == SLIDING else None for kind in kinds)


def by_layer_kind(windows: Windows, *, sliding_causal: bool) -> tuple[bool, ...]:
    """Full attention is always bidirectional inside the block; sliding layers follow the flag."""
    return tuple(width is not None and sliding_causal for width in windows)
