"""The table of requests and how it learns of them; what else than tokens names a context."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from sidedraft.integrations.vllm.identity import UNKNOWN, Identity, identify
from sidedraft.integrations.vllm.requests import RequestTable, announce_new_requests, watch
from support.vllm_world import RequestState, Runner


@pytest.fixture
def released() -> list[Any]:
    return []


@pytest.fixture
def table(released: list[Any]) -> RequestTable:
    return RequestTable(released.extend)


def new(request_id: str = "a", **data: Any) -> Any:
    plain = {"prompt_embeds": None, "prompt_is_token_ids": None, "lora_request": None, "mm_features": []}
    return SimpleNamespace(req_id=request_id, **(plain | data))


def adapter(name: str = "x", path: str = "/x", number: int = 1, *, inplace: bool = False) -> Any:
    return SimpleNamespace(lora_name=name, lora_path=path, lora_int_id=number, load_inplace=inplace)


def image(identifier: str = "hash", offset: int = 2, length: int = 4, modality: str = "image") -> Any:
    place = SimpleNamespace(offset=offset, length=length)
    return SimpleNamespace(modality=modality, identifier=identifier, mm_position=place)


def test_a_request_is_released_when_it_goes_if_the_drafter_knows_it(
    table: RequestTable, released: list[Any]
) -> None:
    table.added("a")
    table.removed("a")
    assert released == []
    table.added("a")
    table.open("a", table.find("a"))
    key = table.find("a").key
    table.removed("a")
    assert released == [key]
    table.removed("a")
    table.removed("never seen")
    assert released == [key]
    with pytest.raises(KeyError):
        table.find("a")


def test_keys_are_never_used_twice(table: RequestTable, released: list[Any]) -> None:
    for _ in range(3):
        table.added("a")
        table.open("a", table.find("a"))
    table.doubt(["a"])
    table.open("a", table.find("a"))
    table.removed("a")
    assert len(set(released)) == len(released) == 4


def test_doubt_gives_up_what_was_stated_of_some_or_of_all(table: RequestTable, released: list[Any]) -> None:
    for name in "abc":
        table.added(name)
        table.open(name, table.find(name))
        table.find(name).committed = 7
    table.doubt(["b", "gone"])
    assert [key[0] for key in released] == ["b"]
    assert (table.find("b").key, table.find("b").committed, table.find("b").doubtful) == (None, 0, True)
    assert table.find("a").committed == 7
    table.doubt()
    assert sorted(key[0] for key in released) == ["a", "b", "c"]
    table.open("a", table.find("a"))
    assert not table.find("a").doubtful


def test_an_identity_belongs_to_the_next_coming_only(table: RequestTable) -> None:
    table.announce([new("a"), new("b", lora_request=adapter())])
    table.added("a")
    table.added("b")
    assert table.find("a").identity == Identity()
    assert table.find("b").identity.context_key
    table.added("a")
    assert table.find("a").identity == UNKNOWN, "its data was not announced again"


def test_the_request_table_of_the_engine_is_watched_without_being_changed(
    table: RequestTable, released: list[Any]
) -> None:
    states = RequestState(2)
    watch(states, table)
    states.add_request("a", 2, [1, 2], 0, 5)
    states.add_request(req_id="b", prompt_len=2, all_token_ids=[1, 2], num_computed_tokens=0, max_tokens=5)
    assert table.find("b") is not table.find("a")
    with pytest.raises(IndexError):
        states.add_request("c", 2, [1, 2], 0, 5)
    with pytest.raises(KeyError):
        table.find("c")
    assert states.remove_request("b") == 0
    assert states.remove_request("b") is None
    with pytest.raises(KeyError):
        table.find("b")


def test_a_fault_in_the_table_does_not_reach_the_engine(caplog: pytest.LogCaptureFixture) -> None:
    def fail(keys: Any) -> None:
        raise RuntimeError("no such luck")

    table = RequestTable(fail)
    states = RequestState(1)
    watch(states, table)
    states.add_request("a", 2, [1, 2], 0, 5)
    table.open("a", table.find("a"))
    with caplog.at_level(logging.ERROR):
        assert states.remove_request("a") == 0
    assert "no such luck" in caplog.text


def test_new_request_data_is_announced_once_before_the_runner_takes_it_in() -> None:
    kind = type("Wrapped", (Runner,), {})
    announce_new_requests(kind)
    announce_new_requests(kind)
    runner = kind(1)
    seen: list[Any] = []
    slots = runner.req_states.req_id_to_index
    runner.speculator = SimpleNamespace(announce=lambda news: seen.append((news[0].req_id, dict(slots))))
    data = new("a", prompt_len=1, prefill_token_ids=[1], num_computed_tokens=0, max_tokens=1)
    runner.add_requests(SimpleNamespace(scheduled_new_reqs=[data]))
    assert seen == [("a", {})]
    assert list(runner.req_states.req_id_to_index) == ["a"]


@pytest.mark.parametrize("speculator", [None, SimpleNamespace()])
def test_runners_with_another_speculator_go_on_as_ever(speculator: Any) -> None:
    kind = type("Wrapped", (Runner,), {})
    announce_new_requests(kind)
    runner = kind(1)
    runner.speculator = speculator
    runner.add_requests(SimpleNamespace(scheduled_new_reqs=[]))


def test_plain_text_has_no_context_key() -> None:
    assert identify(new()) == Identity()
    assert identify(new(mm_features=None, prompt_is_token_ids=[True, True])) == Identity()


def test_adapters_and_images_and_their_places_make_different_keys() -> None:
    found = [
        identify(new(lora_request=adapter())),
        identify(new(lora_request=adapter(path="/y"))),
        identify(new(lora_request=adapter(name="y"))),
        identify(new(mm_features=[image()])),
        identify(new(mm_features=[image("other")])),
        identify(new(mm_features=[image(offset=3)])),
        identify(new(mm_features=[image(length=3)])),
        identify(new(mm_features=[image(modality="audio")])),
        identify(new(mm_features=[image(), image(offset=9)])),
        identify(new(mm_features=[image()], lora_request=adapter())),
    ]
    keys = {one.context_key for one in found}
    assert len(keys) == len(found)
    assert all(0 < len(key) <= 64 for key in keys)
    assert not any(one.private for one in found)
    assert identify(new(mm_features=[image()])) == identify(new("b", mm_features=[image()]))


@pytest.mark.parametrize(
    "data",
    [
        {"prompt_embeds": torch.zeros(2, 3)},
        {"prompt_is_token_ids": [True, False]},
        {"lora_request": adapter(inplace=True)},
    ],
)
def test_what_nothing_here_determines_is_private(data: dict[str, Any]) -> None:
    assert identify(new(**data)).private
