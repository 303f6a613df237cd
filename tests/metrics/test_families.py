"""From figures to the text that is scraped, read back with Prometheus' own parser."""

from __future__ import annotations

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from sidedraft.metrics.exposition import Exposition
from sidedraft.metrics.families import Families
from sidedraft.wire.figures import BOUNDS_US

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


def figures() -> Families:
    families = Families()
    for label, value in (("a", 1), ("b", 2)):
        families.counter("t_events", "Events.", value, verifier=label)
        families.gauge("t_level", "Level.", value / 2, verifier=label)
        families.histogram("t_size", "Sizes.", (0, 1), (3, 2, 1), 9, verifier=label)
    return families


def samples(text: str, parse: object = parse_text) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(text)  # type: ignore[operator]
        for sample in family.samples
    }


@pytest.mark.parametrize(("accept", "parse"), [("", parse_text), (OPENMETRICS, parse_openmetrics)])
def test_samples_come_back_as_they_were_put_in(accept: str, parse: object) -> None:
    text, content_type = Exposition(figures).render(accept)
    assert content_type.startswith("application/openmetrics-text" if accept else "text/plain")
    found = samples(text.decode(), parse)
    assert found["t_events_total", (("verifier", "b"),)] == 2
    assert found["t_level", (("verifier", "a"),)] == 0.5
    ends = {dict(key)["le"]: value for (name, key), value in found.items() if name == "t_size_bucket"}
    assert {float(end): value for end, value in ends.items()} == {0: 3, 1: 5, float("inf"): 6}
    assert found["t_size_sum", (("verifier", "a"),)] == 9
    assert found["t_size_count", (("verifier", "a"),)] == 6


def test_a_stage_is_in_seconds() -> None:
    families = Families()
    families.stage("t_seconds", "Times.", [1] * (len(BOUNDS_US) + 1), 2_500_000, stage="x")
    found = samples(Exposition(lambda: families).render("")[0].decode())
    assert found["t_seconds_sum", (("stage", "x"),)] == 2.5
    assert found["t_seconds_bucket", (("le", "0.0001"), ("stage", "x"))] == 2


def test_registries_of_one_process_do_not_mix_and_each_has_the_process() -> None:
    one, other = Exposition(figures), Exposition(Families)
    assert b"t_events" in one.render("")[0]
    assert b"t_events" not in other.render("")[0]
    assert b"process_resident_memory_bytes" in other.render("")[0]
