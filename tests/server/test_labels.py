"""Labels of verifiers: unique, stable while they stay, few over a server's life."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sidedraft.server.labels import Labels, clean


def test_equal_names_are_told_apart_and_a_label_is_kept() -> None:
    labels = Labels()
    assert labels.assign({1: "v", 2: "v"}) == {1: "v", 2: "v-2"}
    assert labels.assign({2: "v", 3: "v"}) == {2: "v-2", 3: "v"}


def test_a_verifier_that_returns_gets_its_label_again() -> None:
    labels = Labels()
    for owner in range(100):
        assert labels.assign({owner: "v"}) == {owner: "v"}
        labels.assign({})


def test_a_name_that_looks_like_a_number_of_another_is_no_confusion() -> None:
    assert Labels().assign({1: "v-2", 2: "v", 3: "v"}) == {1: "v-2", 2: "v", 3: "v-3"}


def test_names_that_keep_changing_end_up_as_other() -> None:
    labels = Labels(most=3)
    seen = {labels.assign({owner: f"pod-{owner}"})[owner] for owner in range(50)}
    assert seen == {"pod-0", "pod-1", "pod-2", "other"}
    # Those known from before keep their names.
    assert labels.assign({99: "pod-1"}) == {99: "pod-1"}


def test_what_needs_quoting_is_replaced() -> None:
    assert clean('a b"{}\\\u00e4') == "a_b_"
    assert clean("eng/host:1.x_y-z") == "eng/host:1.x_y-z"
    assert clean("") == "_"
    assert clean("\u00e4\u00f6") == "_"


@given(
    st.lists(
        st.dictionaries(st.integers(0, 5), st.sampled_from(["a", "b", "a-2", "other", ""]), max_size=5),
        max_size=20,
    )
)
def test_no_two_verifiers_ever_share_a_label(rounds: list[dict[int, str]]) -> None:
    labels = Labels(most=3)
    # Different verifiers: an owner's name never changes.
    before: dict[int, str] = {}
    for number, there in enumerate(rounds):
        present = {owner + 10 * number: name for owner, name in there.items()}
        present |= {owner: name for owner, name in before.items() if owner % 2}
        given_labels = dict(labels.assign(present))
        assert set(given_labels) == set(present)
        assert len(set(given_labels.values())) == len(present)
        before = present
