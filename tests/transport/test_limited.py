"""One line in an interval about the same thing, and none lost from the count."""

from __future__ import annotations

from sidedraft.transport.limited import Limited


def test_what_comes_between_is_counted_in_the_next_line() -> None:
    limited = Limited(interval=5.0)
    assert limited.due("a", 0.0) == ""
    assert [limited.due("a", now) for now in (0.1, 2.0, 4.9)] == [None, None, None]
    assert limited.due("b", 4.9) == ""
    assert limited.due("a", 5.0) == " (and 3 like it since the last line)"
    assert limited.due("a", 11.0) == ""


def test_ever_new_things_cost_no_memory() -> None:
    limited = Limited()
    for thing in range(1000):
        limited.due(thing, 0.0)
        limited.due(thing, 0.0)
    assert len(limited._last) <= 256
    assert len(limited._held) <= 256
