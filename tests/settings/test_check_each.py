"""Every wrong value at once, each by itself."""

from __future__ import annotations

from sidedraft.settings import EngineSettings, check_each


def test_each_wrong_value_and_unknown_name_is_an_error_of_its_own() -> None:
    given = {"kv_memory": "much", "max_requests": 0, "block_size": "64", "windows": 3}
    errors = check_each(EngineSettings, given)
    assert [error.field for error in errors] == ["kv_memory", "max_requests", "windows"]
    assert "'much'" in str(errors[0])
    assert "one of the settings kv_memory" in str(errors[2])


def test_right_values_are_no_error() -> None:
    assert check_each(EngineSettings, {"kv_memory": "2GiB", "max_depth": None}) == []
