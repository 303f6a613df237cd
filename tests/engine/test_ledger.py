"""What an advance changes, and the names of blocks, beside a plain list of tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidedraft.engine.chain import BlockChain
from sidedraft.engine.ledger import TokenLedger
from sidedraft.wire.errors import Code, WireError
from support.engine_client import text, tokens

BLOCK = 4
TOKENS = st.lists(st.integers(0, 1), max_size=20)


def chain(lookahead: int = 0, secret: bytes = b"secret") -> BlockChain:
    return BlockChain((b"draft",), BLOCK, lookahead=lookahead, secret=secret)


@given(
    prefix=TOKENS, steps=st.lists(st.tuples(st.integers(0, 30), TOKENS), max_size=8), limit=st.integers(1, 40)
)
@settings(max_examples=150, deadline=None)
def test_the_ledger_says_what_a_list_would(prefix: list[int], steps: list, limit: int) -> None:
    names = chain()
    ledger = TokenLedger(names, names.seed(), limit)
    known, keys = list(prefix), []
    change = ledger.open(tokens(*prefix), tokens())
    keys = change.keys
    for back, new in steps:
        first = max(0, len(known) - back)
        after = known[:first] + new
        kept = next((i for i, (a, b) in enumerate(zip(known, after, strict=False)) if a != b), None)
        expected = min(len(known), len(after)) if kept is None else kept
        change = ledger.apply(first, tokens(*new))
        known = after
        assert change.end == ledger.end == len(known)
        assert min(change.kept, limit) == min(expected, limit)
        keys[change.first_block :] = change.keys
        whole = min(len(known), limit) // BLOCK
        assert keys == names.extend(names.seed(), tokens(*known), 0, whole)


@given(one=TOKENS, other=TOKENS)
@settings(max_examples=200, deadline=None)
def test_keys_are_equal_exactly_where_all_tokens_so_far_are(one: list[int], other: list[int]) -> None:
    names = chain()
    keys = [names.extend(names.seed(), tokens(*t), 0, len(t) // BLOCK) for t in (one, other)]
    for i, (a, b) in enumerate(zip(*keys, strict=False)):
        assert (a == b) == (one[: (i + 1) * BLOCK] == other[: (i + 1) * BLOCK])


def test_a_key_covers_the_tokens_its_rows_consumed() -> None:
    names = chain(lookahead=1)
    assert [names.blocks_known(n) for n in (0, 4, 5, 8, 9)] == [0, 0, 1, 1, 2]
    same = names.extend(b"", tokens(1, 2, 3, 4, 5), 0, 1)
    assert names.extend(b"", tokens(1, 2, 3, 4, 6), 0, 1) != same
    assert names.extend(b"", tokens(1, 2, 3, 4, 5, 6), 0, 1) == same


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((b"ab", b"c"), (b"a", b"bc")),
        ((b"a",), (b"a", b"")),
        ((b"x", b"f32"), (b"x", b"bf16")),
    ],
)
def test_seeds_differ_with_any_part_and_their_borders(one: tuple, other: tuple) -> None:
    assert chain().seed(*one) != chain().seed(*other)
    assert chain().seed(*one) == chain().seed(*one)
    assert chain().seed(*one) != chain(secret=b"of another server").seed(*one)


def test_secrets_are_random_by_default() -> None:
    assert BlockChain((), 4).seed() != BlockChain((), 4).seed()


def test_missing_tokens_are_a_gap() -> None:
    ledger = TokenLedger(chain(), None, 100)
    ledger.open(text(5), text(0))
    with pytest.raises(WireError, match="first is 6, expected at most the committed end 5") as caught:
        ledger.apply(6, text(1))
    assert caught.value.code is Code.GAP


def test_tokens_beyond_the_limit_are_counted_and_not_kept() -> None:
    ledger = TokenLedger(chain(), None, 8)
    ledger.open(text(6), text(100))
    assert ledger.end == 106
    assert len(ledger._tokens) == 8
    change = ledger.apply(90, text(30))
    assert (change.kept, change.end) == (106, 120)
    change = ledger.apply(4, np.full(2, 77, np.int32))
    assert (change.kept, change.end) == (4, 6)
