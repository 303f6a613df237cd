"""A recipe is checked when it is built."""

from __future__ import annotations

import pytest

from sidedraft.settings import SettingsError
from sidedraft.training.recipe import Recipe


def test_default_taps_are_the_formats_default() -> None:
    # Layer outputs 1, 8, 14, 20, 27 of 30; an aux id is one more.
    assert Recipe().taps_for(30) == (2, 9, 15, 21, 28)
    assert Recipe(tap_count=1).taps_for(30) == (16,)


def test_stated_taps_win() -> None:
    assert Recipe(taps=(4, 7)).taps_for(30) == (4, 7)


def test_too_many_taps_for_a_target_are_refused() -> None:
    with pytest.raises(SettingsError, match="fewer taps for a target of 6 layers"):
        Recipe(tap_count=5).taps_for(6)


@pytest.mark.parametrize(
    ("values", "field"),
    [({"taps": (3, 2)}, "taps"), ({"depth": 0}, "depth"), ({"learning_rate": 0.0}, "learning_rate")],
)
def test_a_bad_value_names_its_field(values: dict[str, object], field: str) -> None:
    with pytest.raises(SettingsError, match=field):
        Recipe(**values)  # type: ignore[arg-type]
