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
    if len(kinds) != layers or not set(kinds) <= {SLIDING, FULL}:
        fields.fail("layer_types", f"{layers} times {FULL} or {SLIDING}")
    if fields.flag_or("use_swa", False) and SLIDING not in kinds:
        kinds = (SLIDING,) * layers
    if SLIDING not in kinds:
        return (None,) * layers
    if fields.has("swa_window_size"):
        width = fields.integer("swa_window_size", low=1)
    else:
        if not fields.flag_or("use_sliding_window", True):
            fields.fail("use_sliding_window", f"true, as layer_types has {SLIDING}")
        width = fields.integer("sliding_window", low=1)
    return tuple(width if kind == SLIDING else None for kind in kinds)


def by_layer_kind(windows: Windows, *, sliding_causal: bool) -> tuple[bool, ...]:
    """Full attention is always bidirectional inside the block; sliding layers follow the flag."""
    return tuple(width is not None and sliding_causal for width in windows)
