"""Digests: equal for the same facts however they are written, different for different ones, never a guess."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sidedraft.wire.identity import model_digest, target_key, tokenizer_tokens, vocab_digest
from support import protocol as p

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rope_theta": 100000,
    "rope_scaling": None,
    "torch_dtype": "bfloat16",
}
DIGEST = model_digest(LLAMA)


def changed(**changes: Any) -> dict[str, Any]:
    return {name: value for name, value in {**LLAMA, **changes}.items() if value is not ...}


@pytest.mark.parametrize(
    "other",
    [
        changed(torch_dtype="float32", bos_token_id=1),
        changed(rope_theta=100000.0),
        changed(head_dim=64),
        changed(
            rope_theta=..., rope_scaling=..., rope_parameters={"rope_type": "default", "rope_theta": 1e5}
        ),
        changed(rope_parameters={"type": "default"}, partial_rotary_factor=1.0),
        changed(architectures=("LlamaForCausalLM",)),
        {"architectures": ["LlamaForCausalLM"], "text_config": changed(architectures=...)},
    ],
)
def test_the_same_target_has_the_same_digest_however_it_is_written(other):
    assert DIGEST is not None
    assert model_digest(other) == DIGEST


@pytest.mark.parametrize(
    "other",
    [
        changed(architectures=["Qwen3ForCausalLM"]),
        changed(hidden_size=577),
        changed(intermediate_size=1537),
        changed(num_hidden_layers=31),
        changed(num_attention_heads=18),
        changed(num_key_value_heads=1),
        changed(num_key_value_heads=...),
        changed(head_dim=32),
        changed(vocab_size=49153),
        changed(rope_theta=10000),
        changed(partial_rotary_factor=0.5),
        changed(rope_scaling={"type": "linear", "factor": 2.0}),
        changed(rope_scaling={"rope_type": "linear", "factor": 4.0}),
        changed(
            rope_parameters={"full_attention": {"rope_theta": 1e5}, "sliding_attention": {"rope_theta": 1e4}}
        ),
    ],
)
def test_another_target_has_another_digest(other):
    found = model_digest(other)
    assert found is not None
    assert found != DIGEST


@pytest.mark.parametrize(
    "name",
    [
        "architectures",
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
        "rope_theta",
    ],
)
def test_what_is_not_stated_is_not_guessed(name):
    assert model_digest(changed(**{name: ...})) is None


def test_a_config_that_names_several_architectures_has_no_digest():
    assert model_digest(changed(architectures=["A", "B"])) is None


YARN = {"factor": 4.0, "original_max_position_embeddings": 2048}


@pytest.mark.parametrize(
    "other",
    [
        changed(rope_scaling={"rope_type": "yarn", **YARN}),
        changed(rope_scaling={"type": "yarn", "factor": 4}, original_max_position_embeddings=2048),
        changed(rope_scaling={"type": "yarn", "factor": 4}, max_position_embeddings=2048),
        changed(rope_theta=..., rope_parameters={"rope_theta": 1e5, "rope_type": "yarn", **YARN}),
    ],
)
def test_a_scaled_rope_is_read_in_all_its_spellings(other):
    plain = changed(rope_scaling={"type": "yarn", **YARN})
    assert model_digest(other) == model_digest(plain) != DIGEST


def test_the_order_of_a_vocabulary_does_not_matter_and_every_byte_does():
    tokens = {0: b"a", 1: b"b", 2: b"ab"}
    digest = vocab_digest(tokens)
    assert vocab_digest(dict(reversed(tokens.items()))) == digest
    others = [
        {0: b"b", 1: b"a", 2: b"ab"},
        {0: b"a", 1: b"b"},
        {0: b"a", 1: b"ba", 2: b"b"},
        {**tokens, 3: b""},
    ]
    assert len({digest, *map(vocab_digest, others)}) == 5


@pytest.mark.parametrize("token", [-1, 2**31])
def test_a_token_id_is_bounded(token):
    with pytest.raises(ValueError, match=f"token id {token}"):
        vocab_digest({token: b"a"})


def test_a_tokenizer_gives_its_vocabulary_and_added_tokens():
    bpe = {
        "model": {"type": "BPE", "vocab": {"a": 0, "Ġb": 1}},
        "added_tokens": [{"id": 2, "content": "<|end|>"}, {"id": 0, "content": "a"}],
    }
    assert tokenizer_tokens(bpe) == {0: b"a", 1: "Ġb".encode(), 2: b"<|end|>"}
    unigram = {"model": {"type": "Unigram", "vocab": [["<unk>", 0.0], ["▁a", -1.5]]}}
    assert tokenizer_tokens(unigram) == {0: b"<unk>", 1: "▁a".encode()}


@pytest.mark.parametrize(
    "tokenizer",
    [
        {},
        {"model": None},
        {"model": {"vocab": 5}},
        {"model": {"vocab": {"a": "0"}}},
        {"model": {"vocab": [[]]}},
        {"model": {"vocab": [5]}},
        {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 1}]},
        {"model": {"vocab": {"a": 0}}, "added_tokens": [7]},
        {"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 1, "content": 3}]},
    ],
)
def test_a_tokenizer_of_another_form_has_no_vocabulary(tokenizer):
    assert tokenizer_tokens(tokenizer) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("taps", (1, 2)),
        ("stream", "attn_res"),
        ("hidden_size", 9),
        ("vocab_size", 98),
        ("model_digest", "a" * 64),
        ("vocab_digest", "a" * 64),
    ],
)
def test_blocks_of_targets_that_differ_have_different_keys(field, value):
    other = msgspec.structs.replace(p.TARGET, **{field: value})
    assert target_key(other) != target_key(p.TARGET)
    assert len(target_key(other)) == 16
    assert target_key(p.TARGET) == target_key(msgspec.structs.replace(p.TARGET))
