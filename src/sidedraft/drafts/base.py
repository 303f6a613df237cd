"""What a draft model is to the engine: a declaration, a shape, and two functions.

The engine owns memory and batching and never sees a formula; a draft owns formulas and never sees a request.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Literal, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from sidedraft.drafts.projection import ContextProjection

RowKind = Literal["rowwise", "recurrent", "from_tokens"]


@dataclass(frozen=True, slots=True)
class Family:
    """How a family's context rows come to be (design section 4)."""

    name: str
    rows: RowKind
    """`rowwise`: a row depends on its aux state and position only; holes are legal. `recurrent`: rows depend
    on earlier rows. `from_tokens`: no aux states."""
    lookahead: int = 0
    """Tokens after its own position that a row consumes."""


class Layout(Enum):
    """Where a query block's predictions are read, with the anchor at absolute position a."""

    ANCHOR = "anchor"
    """depth rows; row j (from 0) predicts the token at a+1+j."""
    BONUS = "bonus"
    """1 + depth rows; row j (from 1) predicts the token at a+j, its own position."""


@dataclass(frozen=True, slots=True)
class DraftShape:
    """Everything of a draft that sizes memory or enters the handshake."""

    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden_size: int
    taps: tuple[int, ...]
    """Aux ids, strictly ascending (see `wire.messages.TargetFacts.taps`)."""
    target_hidden_size: int
    vocab_size: int
    """The target's vocabulary: what tokens mean on the wire."""
    draft_vocab_size: int
    max_depth: int
    layout: Layout
    windows: tuple[int | None, ...]
    """Per layer: rows visible, None = all. A key is visible iff query_pos - key_pos < window."""
    causal: tuple[bool, ...]
    """Per layer: whether rows of the query block see only earlier rows of the block."""
    max_position: int
    """Positions the draft serves are below this."""
    has_confidence: bool = False

    @property
    def row_width(self) -> int:
        """Values of one aux row on the wire: taps x target hidden size."""
        return len(self.taps) * self.target_hidden_size

    @property
    def window(self) -> int | None:
        """Context rows that any layer can still see: the maximum over layers, None if any attends fully."""
        found: int = 0
        for width in self.windows:
            if width is None:
                return None
            found = max(found, width)
        return found

    def query_rows(self, depth: int) -> int:
        """Rows of a query block that drafts `depth` tokens."""
        return depth if self.layout is Layout.ANCHOR else depth + 1


class Context(Protocol):
    """The context of a batch of query blocks, gathered by the engine into memory whose unwritten parts are
    never visible. `S = C + Q`: the first C columns are context, the last Q belong to the query block.
    """

    positions: Tensor
    """int64 [B, S], absolute; of no meaning where not `present`."""
    present: Tensor
    """bool [B, S]; the last Q columns are True."""

    def write_block(self, layer: int, keys: Tensor, values: Tensor) -> None:
        """Put the block's own K/V, [B, Q, kv_heads, head_dim] each, into the last Q columns."""

    def keys(self, layer: int) -> Tensor:
        """[B, kv_heads, S, head_dim], a view; zeros where not present."""

    def values(self, layer: int) -> Tensor:
        """[B, kv_heads, S, head_dim], a view; zeros where not present."""


@dataclass(slots=True)
class Proposal:
    """What a query pass gives."""

    tokens: Tensor
    """int64 [B, depth], target ids."""
    logits: Tensor
    """[B, depth, draft_vocab_size], pre-temperature, in draft-vocabulary space."""
    finite: Tensor
    """bool [B]: every logit used for this row was finite; else its tokens must not be used."""
    confidence: Tensor | None = None
    """float32 [B, depth], estimated acceptance."""


class Draft(Protocol):
    """A loaded draft model. Pure functions of their arguments; no state between calls."""

    family: Family
    shape: DraftShape
    identity: str
    """Hex digest of config and weights."""
    dtype: torch.dtype
    device: torch.device

    def context_rows(self, aux: Tensor, positions: Tensor) -> Tensor:
        """K/V rows of accepted positions.

        aux: [n, row_width]; positions: int64 [n]. Returns [n, layers, 2, kv_heads, head_dim] (K then V).
        """

    @property
    def projection(self) -> ContextProjection | None:
        """What may be applied to aux states before `projected_rows`; None where there is no such step."""

    def projected_rows(self, hidden: Tensor, positions: Tensor) -> Tensor:
        """As `context_rows`, of what `projection` gave: hidden [n, projection width]."""

    def propose(self, anchors: Tensor, positions: Tensor, depth: int, context: Context) -> Proposal:
        """Greedy drafts of a batch of query blocks.

        anchors: int64 [B], target ids; positions: int64 [B], the anchors' absolute positions.
        """

    def weight_bytes(self) -> int:
        """Memory of all weights on the device, in bytes."""
