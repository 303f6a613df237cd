"""Where a request's rows stand: a table of slots, one a position, over blocks it holds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from sidedraft.engine.blocks import NULL_BLOCK, BlockPool, Blocks

Slots = npt.NDArray[np.int32]
"""Rows of the pool by position; 0, the null block's first row, where the row is absent."""

NO_SLOTS: Slots = np.zeros(0, dtype=np.int32)


class RowTable:
    """The rows of one request: present, absent, and in which blocks.

    Only what the request wrote itself or found published is in the table, so that nothing else can be read.
    Positions are bounded by `limit`; the table grows with what is committed.
    """

    def __init__(self, pool: BlockPool, block_size: int, limit: int) -> None:
        self.slots: Slots = NO_SLOTS
        self.blocks: Blocks = NO_SLOTS
        """Block ids by block index; the null block where there is none."""
        self._pool = pool
        self._size = block_size
        self._limit = limit
        self._oldest = 0
        """No block stands below this index."""

    def reach(self, end: int) -> None:
        """Make room for positions below `end`."""
        blocks = -(-min(end, self._limit) // self._size)
        if blocks <= len(self.blocks):
            return
        most = -(-self._limit // self._size)
        blocks = min(most, max(blocks, 2 * len(self.blocks), 4))
        self.blocks = np.concatenate([self.blocks, np.zeros(blocks - len(self.blocks), np.int32)])
        self.slots = np.concatenate([self.slots, np.zeros(blocks * self._size - len(self.slots), np.int32)])

    def span(self, low: int, end: int) -> tuple[int, int]:
        """First present position in `[low, end)`, and how many are present; `(end, 0)` when none is."""
        low = max(low, self._oldest * self._size)
        present = self.slots[low : min(end, self._limit)] != 0
        count = int(np.count_nonzero(present))
        return (low + int(present.argmax()), count) if count else (end, 0)

    def is_full(self, index: int) -> bool:
        """Whether every row of block `index` is present."""
        return bool(self.slots[index * self._size : (index + 1) * self._size].all())

    def adopt(self, index: int, block: int) -> None:
        """Put a published block, held for this request, where no block stands."""
        self.blocks[index] = block
        start = index * self._size
        self.slots[start : start + self._size] = np.arange(block * self._size, (block + 1) * self._size)
        self._oldest = min(self._oldest, index)

    def claim(self, low: int, end: int) -> Slots:
        """Slots to write for the absent positions of `[low, end)`; 0 for rows present, or without room.

        Takes blocks, lets go of this request's own oldest unshared rows where the pool is full, and gives
        what there is to the newest positions.
        """
        size = self._size
        first, last = low // size, (end - 1) // size
        missing = [i for i in range(first, last + 1) if self.blocks[i] == NULL_BLOCK]
        for index in reversed(missing):
            block = self._pool.take()
            if block is None and self._let_go_oldest(before=first):
                block = self._pool.take()
            if block is None:
                break
            self.blocks[index] = block
            self._oldest = min(self._oldest, index)
        self._pool.use(self.blocks[first : last + 1], write=True)
        positions = np.arange(low, end, dtype=np.int32)
        fresh = self.blocks[positions // size] * size + positions % size
        fresh[(fresh < size) | (self.slots[low:end] != 0)] = 0
        self.slots[low:end] += fresh
        return fresh

    def truncate(self, kept: int) -> tuple[Slots, Slots] | None:
        """Void every row at `kept` and above.

        A published block that is cut gives its kept rows to a block of this request's own. Returns (from,
        to): slots whose rows have to be copied for that.
        """
        size = self._size
        kept = min(kept, len(self.slots))
        cut = kept // size
        for index in range(len(self.blocks) - 1, cut, -1):
            self._drop(index)
        if cut == len(self.blocks):
            return None
        source = self.slots[cut * size : kept].copy()
        if not source.any():
            self._drop(cut)
            return None
        self.slots[kept : (cut + 1) * size] = 0
        if not self._pool.is_published(int(self.blocks[cut])):
            return None
        own = self._pool.take()
        self._pool.use(self.blocks[cut : cut + 1])
        self._drop(cut)
        if own is None:
            return None
        self.blocks[cut] = own
        self._oldest = min(self._oldest, cut)
        self._pool.use(self.blocks[cut : cut + 1], write=True)
        target = own * size + np.arange(len(source), dtype=np.int32)
        self.slots[cut * size : kept] = target
        return source, target

    def let_go_below(self, position: int) -> None:
        """Drop the blocks that lie wholly below `position`."""
        until = min(position // self._size, len(self.blocks))
        for index in range(until - 1, self._oldest - 1, -1):
            self._drop(index)
        self._oldest = max(self._oldest, until)

    def release(self) -> None:
        """Drop everything, the newest first, so that the beginning of a prefix is kept longest."""
        self.let_go_below(len(self.slots))

    def _let_go_oldest(self, before: int) -> bool:
        frees = self._pool.frees(self.blocks[self._oldest : before])
        if not frees.any():
            return False
        self._drop(self._oldest + int(frees.argmax()))
        return True

    def _drop(self, index: int) -> None:
        block = int(self.blocks[index])
        if block != NULL_BLOCK:
            self.blocks[index] = NULL_BLOCK
            self.slots[index * self._size : (index + 1) * self._size] = 0
            self._pool.drop(block)
