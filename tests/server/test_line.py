"""Whose turn it is: equal shares of what things cost, whatever their sizes, and nobody left out."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from sidedraft.server.line import Key, Line

CREDIT = 100


def serve(line: Line, costs: dict[Key, int]) -> Key:
    key = line.first(costs.__getitem__)
    assert key is not None
    line.pay(key, costs[key])
    return key


def test_owners_get_equal_shares_though_one_has_more_requests_and_another_larger_ones() -> None:
    line = Line(CREDIT)
    costs = {(1, 0): 400, (2, 0): 30, **{(3, request): 70 for request in range(20)}}
    for key in costs:
        line.add(key)
    paid: Counter[int] = Counter()
    for _ in range(2000):
        key = serve(line, costs)
        paid[key[0]] += costs[key]
    assert max(paid.values()) - min(paid.values()) <= CREDIT + 400


def test_an_owner_alone_is_never_held_back() -> None:
    line = Line(CREDIT)
    line.add((1, 5))
    assert serve(line, {(1, 5): 10_000}) == (1, 5)


def test_an_owners_requests_take_turns() -> None:
    line = Line(CREDIT)
    costs = {(1, request): 10 for request in range(3)}
    for key in costs:
        line.add(key)
    assert [serve(line, costs)[1] for _ in range(5)] == [0, 1, 2, 0, 1]


def test_who_has_left_cannot_save_up_for_later() -> None:
    line = Line(CREDIT)
    costs = {(1, 0): 1, (2, 0): 90}
    for _ in range(50):
        line.add((1, 0))
        serve(line, costs)
        line.remove((1, 0))
    line.add((1, 0))
    line.add((2, 0))
    costs[1, 0] = 60
    owners = [serve(line, costs)[0] for _ in range(20)]
    assert abs(60 * owners.count(1) - 90 * owners.count(2)) <= CREDIT + 90


def test_what_does_not_fit_stays_first_and_saves_nothing_up() -> None:
    line = Line(CREDIT)
    costs = {(1, 0): 300, (2, 0): 90}
    line.add((1, 0))
    assert line.first(costs.__getitem__, room=299) is None
    line.add((2, 0))
    assert line.first(costs.__getitem__, room=299) is None
    assert serve(line, costs) == (2, 0)


def test_nobody_is_first_in_an_empty_line() -> None:
    assert Line(CREDIT).first(lambda _: 1) is None


def test_looking_does_not_change_whose_turn_it_is() -> None:
    line = Line(CREDIT)
    costs = {(1, 0): 60, (2, 0): 60}
    for key in costs:
        line.add(key)
    assert [line.first(costs.__getitem__) for _ in range(3)] == [(1, 0)] * 3
    line.pay((1, 0), 60)
    assert [line.first(costs.__getitem__) for _ in range(3)] == [(2, 0)] * 3


OWNERS = 4
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, OWNERS), st.integers(0, 2), st.integers(1, 350)),
        st.tuples(st.just("remove"), st.integers(1, OWNERS), st.integers(0, 2), st.just(0)),
        st.tuples(st.just("serve"), st.just(0), st.just(0), st.just(0)),
    ),
    max_size=200,
)


@given(STEPS)
def test_between_two_turns_of_a_request_no_other_owner_gets_more_than_its_share(
    steps: list[tuple[str, int, int, int]],
) -> None:
    """While an owner waits and the line serves others, each other owner gets at most the credit that it takes
    to save up for this owner's dearest request, and one request more."""
    line = Line(CREDIT)
    costs: dict[Key, int] = {}
    since: dict[int, Counter[int]] = {}
    for what, owner, request, cost in steps:
        key = (owner, request)
        if what == "add" and key not in costs:
            costs[key] = cost
            line.add(key)
            since.setdefault(owner, Counter())
        elif what == "remove":
            line.remove(key)
            costs.pop(key, None)
        elif what == "serve" and costs:
            served = serve(line, costs)
            for waiting, others in since.items():
                if waiting != served[0]:
                    others[served[0]] += costs[served]
                    own = max(c for k, c in costs.items() if k[0] == waiting)
                    rounds = -(-max(own, 350) // CREDIT) + 1
                    assert others[served[0]] <= rounds * CREDIT + 350
            since[served[0]] = Counter()
        for gone in [o for o in since if not any(k[0] == o for k in costs)]:
            del since[gone]
        assert sorted(line) == sorted(costs)
        assert bool(line) is bool(costs)
