"""What two ends agree on, and what keeps them apart."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidedraft.wire import messages as m
from sidedraft.wire.agreement import Agreement
from sidedraft.wire.codec import Codec, End
from sidedraft.wire.errors import Code, WireError
from sidedraft.wire.handshake import ServerFacts, check_welcome, negotiate, random_id, refusal, welcome
from sidedraft.wire.rows import Projection, of_kind
from sidedraft.wire.validate import check
from support import protocol as p

MODEL, OTHER_MODEL = "a" * 64, "b" * 64
VOCABULARY, OTHER_VOCABULARY = "c" * 64, "d" * 64


def hello(**changes: Any) -> m.Hello:
    return msgspec.structs.replace(p.HELLO, **changes)


def target(**changes: Any) -> m.TargetFacts:
    return msgspec.structs.replace(p.TARGET, **changes)


def draft(**changes: Any) -> m.DraftFacts:
    return msgspec.structs.replace(p.DRAFT, **changes)


def agreed(said: m.Hello = p.HELLO, facts: ServerFacts = p.FACTS) -> Agreement:
    return p.agreement(said, facts)


def refused(code: Code, said: m.Hello = p.HELLO, facts: ServerFacts = p.FACTS) -> m.Refusal:
    found = negotiate(said, facts, p.SESSION)
    assert isinstance(found, m.Refusal)
    assert found.code == code
    check(found)
    return found


def test_both_ends_hold_the_same_agreement():
    ours = agreed()
    (frame,) = Codec(End.SERVER).encode(welcome(ours, "server 1.0"))
    answer = Codec(End.VERIFIER).decode([frame])
    assert isinstance(answer, m.Welcome)
    assert check_welcome(p.HELLO, answer) == ours
    assert (ours.session, ours.epoch, ours.row_width, ours.row_bytes) == (p.SESSION, p.EPOCH, 16, 32)


MUST_BE_EQUAL = [
    ("taps", hello(target=target(taps=(1, 4))), "[1, 3]", "[1, 4]"),
    ("taps", hello(target=target(taps=(1,))), "[1, 3]", "[1]"),
    ("stream", hello(target=target(stream="attn_res")), "residual", "attn_res"),
    ("hidden_size", hello(target=target(hidden_size=16)), "8", "16"),
    ("vocab_size", hello(target=target(vocab_size=98)), "97", "98"),
    ("family", hello(draft=draft(family="dspark")), "dflash", "dspark"),
    ("layout", hello(draft=draft(layout="anchor")), "bonus", "anchor"),
]


@pytest.mark.parametrize(("field", "said", "ours", "theirs"), MUST_BE_EQUAL)
def test_a_mismatch_names_both_values(field, said, ours, theirs):
    found = refused(Code.MISMATCH, said)
    assert (found.field, found.ours, found.theirs) == (field, ours, theirs)
    assert found.detail == f"{field}: the server has {ours}, the verifier {theirs}"


def test_everything_that_differs_is_told_at_once():
    said = hello(target=target(hidden_size=16, vocab_size=98), draft=draft(layout="anchor"))
    found = refused(Code.MISMATCH, said)
    assert found.field == "hidden_size"
    assert [part.split(":")[0] for part in found.detail.split("; ")] == [
        "hidden_size",
        "vocab_size",
        "layout",
    ]


def test_a_long_mismatch_still_fits_into_a_message():
    taps = tuple(range(10**6, 10**6 + 64))
    found = refused(Code.MISMATCH, hello(target=target(taps=taps)))
    assert found.theirs.endswith("…")


@pytest.mark.parametrize(
    ("field", "ours", "theirs"),
    [("model_digest", MODEL, OTHER_MODEL), ("vocab_digest", VOCABULARY, OTHER_VOCABULARY)],
)
def test_digests_that_both_know_must_be_equal(field, ours, theirs):
    found = refused(
        Code.MISMATCH, hello(target=target(**{field: theirs})), p.facts(target=target(**{field: ours}))
    )
    assert (found.field, found.ours, found.theirs) == (field, ours, theirs)


@pytest.mark.parametrize("model", [(MODEL, MODEL), (MODEL, None), (None, MODEL), (None, None)])
@pytest.mark.parametrize("vocabulary", [(VOCABULARY, VOCABULARY), (VOCABULARY, None), (None, None)])
@pytest.mark.parametrize("strict", ["nobody", "verifier", "server"])
def test_an_identity_is_full_when_both_digests_were_compared(model, vocabulary, strict):
    facts = p.facts(
        target=target(model_digest=model[0], vocab_digest=vocabulary[0]), strict_identity=strict == "server"
    )
    said = hello(
        target=target(model_digest=model[1], vocab_digest=vocabulary[1]), strict_identity=strict == "verifier"
    )
    if None not in (*model, *vocabulary):
        assert agreed(said, facts).identity == "full"
    elif strict == "nobody":
        assert agreed(said, facts).identity == "partial"
    else:
        refused(Code.IDENTITY, said, facts)


@pytest.mark.parametrize(
    ("model", "vocabulary", "words"),
    [
        (None, None, "neither digest"),
        (MODEL, None, "model_digest"),
        (None, VOCABULARY, "vocab_digest"),
        (MODEL, VOCABULARY, "model_digest and vocab_digest"),
    ],
)
def test_a_refused_identity_says_what_each_side_knows(model, vocabulary, words):
    facts = p.facts(target=target(model_digest=model, vocab_digest=vocabulary), strict_identity=True)
    found = refused(Code.IDENTITY, p.HELLO, facts)
    assert (found.ours, found.theirs) == (words, "neither digest")


@pytest.mark.parametrize(
    ("ours", "theirs", "minor"),
    [((0, 0), (0, 0), 0), ((0, 3), (1, 2), 2), ((1, 2), (0, 9), 2), ((2, 5), (0, 2), 2)],
)
def test_the_highest_minor_of_both_is_taken(ours, theirs, minor):
    assert agreed(hello(minors=theirs), p.facts(minors=ours)).minor == minor


@pytest.mark.parametrize(("ours", "theirs"), [((0, 1), (2, 3)), ((5, 6), (0, 4))])
def test_without_a_common_minor_there_is_no_session(ours, theirs):
    found = refused(Code.VERSION, hello(minors=theirs), p.facts(minors=ours))
    assert (found.ours, found.theirs) == (
        f"1, minors {ours[0]} to {ours[1]}",
        f"1, minors {theirs[0]} to {theirs[1]}",
    )


def test_another_major_is_refused_even_if_its_hello_can_be_read():
    found = refused(Code.VERSION, hello(protocol=2, minors=(0, 0)))
    assert (found.ours, found.theirs) == ("1, minors 0 to 2", "2, minors 0 to 0")


@pytest.mark.parametrize(
    ("allowed", "asked", "granted"),
    [
        (frozenset({"default"}), "default", True),
        (frozenset({"a", "b"}), "b", True),
        (frozenset({"a", "b"}), "default", False),
        (frozenset(), "default", False),
        (None, "anything", True),
    ],
)
def test_a_namespace_is_a_right(allowed, asked, granted):
    said, facts = hello(namespace=asked), p.facts(namespaces=allowed)
    if granted:
        assert agreed(said, facts).namespace == asked
    else:
        assert refused(Code.NAMESPACE, said, facts).theirs == asked


def test_the_rights_of_others_are_not_told_before_a_mismatch_is():
    """A peer without rights learns which names it may use, and nothing of the draft."""
    said = hello(namespace="mine", target=target(taps=(0, 1)))
    assert "[1, 3]" not in refused(Code.NAMESPACE, said).detail


@pytest.mark.parametrize(
    ("offered", "served", "chosen"),
    [
        (("f32", "bf16"), {"bf16", "f32"}, "f32"),
        (("fp8", "f16"), {"f16", "f32"}, "f16"),
        (("fp8", "f16"), {"fp8", "f16"}, "fp8"),
        (("int4", "f16"), {"int4", "f16"}, "f16"),
    ],
)
def test_the_row_format_is_the_verifiers_best_that_both_know(offered, served, chosen):
    assert (
        agreed(hello(row_formats=offered), p.facts(row_formats=frozenset(served))).row_format.name == chosen
    )


PROJECTION = Projection(8, "0123456789abcdef" * 2)


@pytest.mark.parametrize(
    ("served", "chosen"),
    [
        (PROJECTION, of_kind("projected-fp8", PROJECTION).name),
        (Projection(8, "f" * 32), "bf16"),
        (Projection(9, PROJECTION.digest), "bf16"),
        (None, "bf16"),
    ],
)
def test_projected_rows_are_agreed_on_for_the_drafts_own_projection_only(served, chosen):
    said = hello(row_formats=(of_kind("projected-fp8", PROJECTION).name, "bf16"))
    found = agreed(said, p.facts(projection=served))
    assert found.row_format.name == chosen
    assert found.row_bytes == (8 + 4 if found.row_format.projection else 2 * 16)
    assert check_welcome(said, welcome(found, "server 1.0")) == found


@pytest.mark.parametrize("window", [None, 2048])
@pytest.mark.parametrize("retain", ["window", "all"])
def test_the_server_says_what_proposals_see_and_what_it_keeps(window, retain):
    found = agreed(facts=p.facts(window=window, retain=retain))
    assert (found.window, found.retain) == (window, retain)
    assert check_welcome(p.HELLO, welcome(found, "server 1.0")) == found


def test_a_verifier_of_an_earlier_minor_is_not_told_what_it_would_not_understand():
    said = hello(minors=(0, 1))
    found = agreed(said, p.facts(window=2048, retain="all"))
    answer = welcome(found, "server 1.0")
    assert (answer.minor, answer.window, answer.retain) == (1, msgspec.UNSET, msgspec.UNSET)
    assert check_welcome(said, answer) == found
    assert found.window is None
    early = msgspec.structs.replace(answer, window=2048)
    with pytest.raises(WireError, match="window is present, expected absent: minor 2 was not agreed"):
        check_welcome(said, early)


@pytest.mark.parametrize(("field", "value"), [("window", 0), ("window", 2**31), ("retain", "some")])
def test_a_window_is_a_count_and_what_is_kept_has_a_name(field, value):
    answer = msgspec.structs.replace(welcome(agreed(), "server 1.0"), **{field: value})
    with pytest.raises(WireError, match=rf"welcome\.{field}"):
        check_welcome(p.HELLO, answer)


def test_without_a_common_row_format_there_is_no_session():
    found = refused(
        Code.MISMATCH, hello(row_formats=("fp8",)), p.facts(row_formats=frozenset({"f32", "f16"}))
    )
    assert (found.field, found.ours, found.theirs) == ("row_formats", "f16, f32", "fp8")


@pytest.mark.parametrize(
    ("asked", "theirs", "served", "ours", "depth"),
    [(8, 4, 4, 4, 4), (2, 4, 4, 4, 2), (8, 8, 3, 8, 3), (8, 5, 8, 8, 5), (8, 8, 8, 6, 6)],
)
def test_the_depth_is_the_least_of_all_offers(asked, theirs, served, ours, depth):
    said = hello(max_depth=asked, draft=draft(max_depth=theirs))
    assert agreed(said, p.facts(max_depth=served, draft=draft(max_depth=ours))).max_depth == depth


def test_features_are_those_that_both_know():
    both = agreed(hello(features=("shm", "novel", "topk")), p.facts(features=("topk", "own", "shm")))
    assert both.features == ("topk", "shm")


def test_the_verifier_says_how_far_its_positions_go_and_the_server_how_far_it_serves():
    found = agreed(hello(max_position=99_999))
    assert (found.max_position, found.limits.context) == (99_999, 2048)


@pytest.mark.parametrize(("most", "fits"), [(96, True), (95, False)])
def test_one_row_must_fit_into_a_bulk_frame(most, fits):
    limits = msgspec.structs.replace(p.LIMITS, bulk_payload=most)
    facts = p.facts(limits=limits)
    if fits:
        assert agreed(facts=facts).row_bytes == 32
    else:
        assert refused(Code.TOO_LARGE, facts=facts).theirs == "96 for one row"


WRONG_WELCOMES = [
    ("minor", 3),
    ("row_format", "f16"),
    ("row_format", "novel"),
    ("max_depth", 5),
    ("features", ("shm",)),
    ("identity", "perhaps"),
    ("session", 0),
]


@pytest.mark.parametrize(("field", "value"), WRONG_WELCOMES)
def test_a_server_cannot_choose_what_was_not_offered(field, value):
    answer = msgspec.structs.replace(welcome(agreed(), "server 1.0"), **{field: value})
    said = hello(row_formats=("bf16", "f32", "novel")) if value == "novel" else p.HELLO
    with pytest.raises(WireError) as caught:
        check_welcome(said, answer)
    assert caught.value.field == f"welcome.{field}"


def test_a_strict_verifier_refuses_a_partial_identity():
    answer = welcome(agreed(), "server 1.0")
    with pytest.raises(WireError, match=r"welcome\.identity is partial, expected full"):
        check_welcome(hello(strict_identity=True), answer)


@settings(deadline=None)
@given(said=p.hellos, ours=p.targets, own=p.drafts, namespaces=st.none() | st.frozensets(p.names, max_size=2))
def test_any_hello_gives_an_agreement_or_a_refusal_that_can_be_sent(said, ours, own, namespaces):
    """Half of the facts are the verifier's own, so that both verdicts occur."""
    for facts in (
        p.facts(target=ours, draft=own, namespaces=namespaces),
        p.facts(target=said.target, draft=said.draft, namespaces=None, minors=(0, 99)),
    ):
        found = negotiate(said, facts, p.SESSION)
        if isinstance(found, Agreement):
            (frame,) = Codec(End.SERVER).encode(welcome(found, "server 1.0"))
            answer = Codec(End.VERIFIER).decode([frame])
            assert check_welcome(said, answer) == found
        else:
            (frame,) = Codec(End.SERVER).encode(found)
            assert Codec(End.VERIFIER).decode([frame]) == found


def test_ids_are_random_and_in_range():
    found = {random_id() for _ in range(1000)}
    assert len(found) == 1000
    assert all(0 < one < 2**63 for one in found)


def test_a_refusal_of_any_length_can_be_sent():
    check(refusal(Code.MISMATCH, "taps", "x" * 9999, "y\n" * 999))
