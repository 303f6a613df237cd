"""Names of blocks by content: a keyed hash chain over the tokens that a block's rows were made from."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence

import numpy as np

from sidedraft.wire.advance import Tokens

KEY_BYTES = 16
"""128 bits: far beyond accidental collisions, and unguessable because the hash is keyed."""


class BlockChain:
    """Computes block keys for one server process and one draft.

    The key of block i is `blake2b(key of block i - 1 | tokens its rows consumed)`, with the seed in place of
    the key before block 0. Two requests have equal keys only where everything that their rows depend on is
    equal. The secret is random per process: a peer cannot aim at another's blocks.
    """

    def __init__(
        self, identity: Sequence[bytes], block_size: int, *, lookahead: int = 0, secret: bytes | None = None
    ) -> None:
        """`identity`: whatever of draft and server the rows depend on. `lookahead`: see `Family`."""
        self.block_size = block_size
        self.lookahead = lookahead
        self._identity = tuple(identity)
        self._secret = secrets.token_bytes(32) if secret is None else secret

    def seed(self, *parts: bytes) -> bytes:
        """What stands before block 0: digest of the identity and `parts`, each with its length."""
        digest = hashlib.blake2b(key=self._secret, digest_size=KEY_BYTES)
        for part in (*self._identity, *parts):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(part)
        return digest.digest()

    def blocks_known(self, tokens: int) -> int:
        """How many blocks have a key once so many tokens are known."""
        return max(0, tokens - self.lookahead) // self.block_size

    def extend(self, parent: bytes, tokens: Tokens, first_block: int, until: int) -> list[bytes]:
        """Keys of blocks `[first_block, until)` of the sequence `tokens` (int32, from position 0)."""
        size, reach = self.block_size, self.block_size + self.lookahead
        data = np.ascontiguousarray(tokens, dtype="<i4").data.cast("B")
        keys = []
        for start in range(first_block * size, until * size, size):
            digest = hashlib.blake2b(parent, key=self._secret, digest_size=KEY_BYTES)
            digest.update(data[4 * start : 4 * (start + reach)])
            parent = digest.digest()
            keys.append(parent)
        return keys
