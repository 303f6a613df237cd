"""The life of blocks: who holds one, what it is named, and when its memory may be used again.

A block is free, held (by one request, or by several once it is published), or kept: published and held by
nobody, found by its key until its memory is needed. Block 0 is the null block: never handed out.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np
import numpy.typing as npt

NULL_BLOCK = 0

Blocks = npt.NDArray[np.int32]


class BlockPool:
    """Reference counts, the prefix index and the order of eviction. Knows no rows and no requests.

    Launches are numbered; a block that an unfinished launch uses is pinned: dropped by its last holder, its
    memory stays as it is until that launch has completed.
    """

    def __init__(self, blocks: int) -> None:
        self.total = blocks - 1
        self.launched = 0
        """Number of the newest launch."""
        self.finished = 0
        """Number of the last launch known to be complete."""
        self.evictions = 0
        self.used = np.zeros(blocks, dtype=np.int64)
        """Number of the last launch that reads or writes the block."""
        self.written = np.zeros(blocks, dtype=np.int64)
        """Number of the last launch that writes it."""
        self._references = np.zeros(blocks, dtype=np.int32)
        self._keys: list[bytes | None] = [None] * blocks
        self._index: dict[bytes, int] = {}
        self._free = list(range(blocks - 1, NULL_BLOCK, -1))
        self._kept: OrderedDict[int, None] = OrderedDict()
        self._pinned: dict[int, None] = {}

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def kept(self) -> int:
        """Published blocks that nobody holds."""
        return len(self._kept)

    @property
    def pinned(self) -> int:
        """Blocks that nobody holds but an unfinished launch still uses."""
        return len(self._pinned)

    @property
    def published(self) -> int:
        return len(self._index)

    def take(self) -> int | None:
        """A block of one's own, evicting the block that was kept longest if need be; None when full."""
        if self._free:
            block = self._free.pop()
        elif self._kept:
            block, _ = self._kept.popitem(last=False)
            self._forget(block)
            self.evictions += 1
        else:
            return None
        self._references[block] = 1
        return block

    def find(self, key: bytes) -> int | None:
        """The published block of that key, now held once more; None when there is none."""
        block = self._index.get(key)
        if block is None:
            return None
        if self._references[block] == 0:
            self._kept.pop(block, None)
            self._pinned.pop(block, None)
        self._references[block] += 1
        return block

    def publish(self, block: int, key: bytes) -> bool:
        """Let others find the block, which must never change again. False: the key is taken already."""
        if key in self._index:
            return False
        self._index[key] = block
        self._keys[block] = key
        return True

    def drop(self, block: int) -> None:
        """One holder less."""
        self._references[block] -= 1
        if self._references[block]:
            return
        if self.used[block] > self.finished:
            self._pinned[block] = None
        else:
            self._settle(block)

    def use(self, blocks: Blocks, *, write: bool = False) -> None:
        """The newest launch reads these blocks, or writes them."""
        self.used[blocks] = self.launched
        if write:
            self.written[blocks] = self.launched

    def is_published(self, block: int) -> bool:
        return self._keys[block] is not None

    def frees(self, blocks: Blocks) -> npt.NDArray[np.bool_]:
        """For each block, whether its memory could be used at once if its holder dropped it."""
        return np.equal(self._references[blocks], 1) & np.less_equal(self.used[blocks], self.finished)

    def complete(self, launch: int) -> None:
        """That launch and all before it are done."""
        self.finished = launch
        for block in [block for block in self._pinned if self.used[block] <= launch]:
            del self._pinned[block]
            self._settle(block)

    def _settle(self, block: int) -> None:
        if self._keys[block] is None:
            self._free.append(block)
        else:
            self._kept[block] = None

    def _forget(self, block: int) -> None:
        key = self._keys[block]
        if key is not None:
            del self._index[key]
            self._keys[block] = None
