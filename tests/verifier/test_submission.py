"""What a caller may submit, and how a mistake is told."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from sidedraft.verifier.state.entry import Entry
from sidedraft.verifier.submission import Submission, SubmissionError, check

WIDTH, VOCAB = 8, 50


def checked(**fields: object) -> Entry:
    one = Submission(**({"request": "r", "first": 0} | fields))  # type: ignore[arg-type]
    return check(one, row_width=WIDTH, vocab_size=VOCAB)


@pytest.mark.parametrize(
    "tokens",
    [[3, 4], (3, 4), np.array([3, 4], np.int64), np.array([3, 4], np.uint8), torch.tensor([3, 4])],
    ids=["list", "tuple", "int64", "uint8", "tensor"],
)
def test_tokens_come_in_any_usual_form_and_are_copied(tokens: object) -> None:
    entry = checked(tokens=tokens)
    assert entry.tokens.dtype == np.int32
    assert entry.tokens.tolist() == [3, 4]
    if isinstance(tokens, np.ndarray | torch.Tensor):
        tokens[0] = 9
        assert entry.tokens.tolist() == [3, 4]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"first": -1}, "first is -1; expected 0 or more"),
        ({"depth": -2}, "depth is -2; expected 0 or more"),
        ({"tokens": [1, 50]}, "tokens is 50; expected token ids below 50"),
        ({"tokens": [1, -1]}, "tokens is -1; expected token ids below 50"),
        ({"tokens": [1, 2**40]}, "tokens is 1099511627776"),
        ({"tokens": [[1], [2]]}, "one dimension"),
        ({"tokens": [0.5]}, "whole numbers"),
        ({"next_token": 50}, "next_token is 50"),
        ({"next_token": -1}, "next_token is -1"),
        ({"first": 3, "prefix": [1]}, "expected the 3 tokens before `first`"),
        ({"first": 1, "prefix": [77]}, "prefix is 77"),
        ({"context_key": bytes(65)}, "context_key is '65 bytes'"),
        ({"tokens": [1], "rows": torch.zeros(1, WIDTH + 1)}, r"expected \[rows, 8\]"),
        ({"tokens": [1], "rows": torch.zeros(WIDTH)}, r"expected \[rows, 8\]"),
        ({"tokens": [1], "rows": torch.zeros(1, WIDTH, dtype=torch.int64)}, "floating point"),
        ({"tokens": [1], "rows": torch.zeros(2, WIDTH)}, r"within \[0, 1\)"),
        ({"first": 4, "tokens": [1], "rows": torch.zeros(1, WIDTH), "rows_at": 3}, r"within \[4, 5\)"),
    ],
)
def test_a_mistake_is_named_with_request_field_value_and_what_was_expected(
    fields: dict[str, object], message: str
) -> None:
    with pytest.raises(SubmissionError, match=message) as caught:
        checked(**fields)
    assert "request 'r'" in str(caught.value)


def test_rows_begin_at_first_unless_said_otherwise() -> None:
    entry = checked(first=5, tokens=[1, 2, 3], rows=np.zeros((2, WIDTH), np.float32))
    assert (entry.rows_at, entry.row_count) == (5, 2)
    entry = checked(first=5, tokens=[1, 2, 3], rows=np.zeros((2, WIDTH), np.float32), rows_at=6)
    assert (entry.rows_at, entry.row_count) == (6, 2)


def test_a_horizon_is_a_prefix_length() -> None:
    assert checked(first=5, tokens=[1, 2, 3]).horizon == 0
    assert checked(first=5, tokens=[1, 2, 3], horizon=9).horizon == 9
    with pytest.raises(SubmissionError, match="horizon is -1; expected 0 or more"):
        checked(first=5, tokens=[1, 2, 3], horizon=-1)
