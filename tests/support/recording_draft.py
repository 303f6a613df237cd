"""A draft that keeps what it proposed, so that logits can be seen behind an engine that answers tokens."""

from __future__ import annotations

from torch import Tensor

from sidedraft.drafts import Context, Draft, Proposal


class RecordingDraft:
    """Delegates everything to `draft`."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self.family = draft.family
        self.shape = draft.shape
        self.identity = draft.identity
        self.dtype = draft.dtype
        self.device = draft.device
        self.projection = draft.projection
        self.rows_computed = 0
        self._calls: list[tuple[list[int], Proposal]] = []

    def context_rows(self, aux: Tensor, positions: Tensor) -> Tensor:
        self.rows_computed += len(aux)
        return self._draft.context_rows(aux, positions)

    def projected_rows(self, hidden: Tensor, positions: Tensor) -> Tensor:
        self.rows_computed += len(hidden)
        return self._draft.projected_rows(hidden, positions)

    def propose(self, anchors: Tensor, positions: Tensor, depth: int, context: Context) -> Proposal:
        proposal = self._draft.propose(anchors, positions, depth, context)
        self._calls.append((positions.tolist(), proposal))
        return proposal

    def weight_bytes(self) -> int:
        return self._draft.weight_bytes()

    def logits_at(self, position: int) -> Tensor:
        """[depth, V] of the newest proposal with its anchor there."""
        for positions, proposal in reversed(self._calls):
            if position in positions:
                return proposal.logits[positions.index(position)]
        raise KeyError(position)
