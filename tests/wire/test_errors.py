"""Errors say what was wrong, in bounded, printable words."""

from __future__ import annotations

import pytest

from sidedraft.wire.errors import Code, WireError, shorten


def test_an_error_names_field_value_and_what_was_expected():
    error = WireError(Code.BAD_TOKEN, "tokens", 97, "0 to 96", request=5, generation=1, number=9)
    assert str(error) == "bad_token: tokens is 97, expected 0 to 96 (request 5, generation 1, number 9)"
    assert error.detail == "tokens is 97, expected 0 to 96"
    assert str(WireError(Code.MALFORMED, "header", "x", "y")) == "malformed: header is x, expected y"


@pytest.mark.parametrize("value", ["x" * 10_000, b"\x00" * 10_000, list(range(10_000))])
def test_a_value_is_shown_in_part(value):
    assert len(WireError(Code.BAD_FIELD, "field", value, "less").value) == 80


def test_a_value_cannot_write_to_a_terminal():
    assert WireError(Code.BAD_FIELD, "field", "\x1b[2J\n", "text").value == "�[2J�"


@pytest.mark.parametrize(("text", "short"), [("abc", "abc"), ("abcd", "abcd"), ("abcde", "abc…"), ("", "")])
def test_shortened_text_fits(text, short):
    assert shorten(text, 4) == short


def test_codes_are_short_enough_for_the_worst_batch_of_refusals():
    assert max(len(code.value) for code in Code) <= 18
