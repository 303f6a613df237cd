"""The supported range."""

from __future__ import annotations

import pytest

from sidedraft.integrations.vllm import versions


@pytest.mark.parametrize("version", ["0.32.0", "0.32.0+cpu", "0.33.1", "0.33.1rc2.dev3+g0123abc"])
def test_versions_of_the_range_are_supported(version: str) -> None:
    versions.require(version)


@pytest.mark.parametrize("version", ["0.31.9", "0.34.0", "0.34.0rc1", "1.32.0", "0.3.33", "dev", ""])
def test_others_are_refused_in_one_line_that_names_both(version: str) -> None:
    with pytest.raises(versions.UnsupportedVersionError) as error:
        versions.require(version)
    (line,) = str(error.value).splitlines()
    assert versions.RANGE in line
    assert f"vLLM {version}" in line
