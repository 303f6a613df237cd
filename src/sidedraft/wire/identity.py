"""Digests by which both ends know that they speak of the same target.

A digest is of facts both ends can read for themselves, in a canonical form. What is not known for certain
gives no digest (None) rather than a guess: a wrong mismatch would cost every draft, while an unknown digest
only makes the identity `partial`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b

from sidedraft.wire.limits import MAX_VOCABULARY
from sidedraft.wire.messages import TargetFacts

_DIGEST_BYTES = 32
_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


def vocab_digest(tokens: Mapping[int, bytes]) -> str:
    """Hex digest of a vocabulary: token id -> the token's bytes, ids from 0 to below 2**31.

    Raises:
        ValueError: an id out of range.
    """
    digest = blake2b(digest_size=_DIGEST_BYTES, person=b"sidedraft-vocab")
    for token in sorted(tokens):
        if not 0 <= token <= MAX_VOCABULARY:
            raise ValueError(f"token id {token}: expected 0 to {MAX_VOCABULARY}")
        text = tokens[token]
        digest.update(token.to_bytes(4, "little") + len(text).to_bytes(4, "little") + text)
    return digest.hexdigest()


def tokenizer_tokens(tokenizer: Mapping[str, object]) -> dict[int, bytes] | None:
    """The id -> bytes map of a parsed `tokenizer.json`; None when its form is not known.

    A token's bytes are the UTF-8 of its text as the vocabulary writes it. A byte-level vocabulary writes
    bytes as printable characters; as both ends read such a file, the writing need not be undone.
    """
    model = tokenizer.get("model")
    vocab = model.get("vocab") if isinstance(model, Mapping) else None
    added = tokenizer.get("added_tokens")
    pairs: list[tuple[object, object]]
    try:
        if isinstance(vocab, Mapping):
            pairs = [(token, text) for text, token in vocab.items()]
        elif isinstance(vocab, list):  # unigram: [text, score], and a token's id is its place
            pairs = [(token, entry[0]) for token, entry in enumerate(vocab)]
        else:
            return None
        if isinstance(added, list):
            pairs += [(entry["id"], entry["content"]) for entry in added]
    except (KeyError, IndexError, TypeError):
        return None
    tokens: dict[int, bytes] = {}
    for token, text in pairs:
        if not isinstance(token, int) or not isinstance(text, str):
            return None
        tokens[token] = text.encode(errors="surrogatepass")
    return tokens


def model_digest(config: Mapping[str, object]) -> str | None:
    """Hex digest of architecture, sizes and rope from a target's `config.json`; None if any is missing.

    Both spellings of rope are read (`rope_parameters`, or `rope_theta` with `rope_scaling`) and give the
    same digest. A composite model counts as its language model (`text_config`).
    """
    architectures = config.get("architectures")
    text = config.get("text_config")
    inner: Mapping[str, object] = text if isinstance(text, Mapping) else config
    rope = _rope(inner)
    if not isinstance(architectures, list | tuple) or len(architectures) != 1 or rope is None:
        return None
    facts: dict[str, object] = {"architecture": architectures[0], "rope": rope}
    for name in _SIZES:
        facts[name] = inner.get(name)
    heads = facts["num_attention_heads"]
    facts["num_key_value_heads"] = inner.get("num_key_value_heads") or heads
    facts["head_dim"] = inner.get("head_dim") or _head_dim(facts["hidden_size"], heads)
    if any(value is None for value in facts.values()):
        return None
    canonical = json.dumps(_canonical(facts), sort_keys=True, separators=(",", ":"))
    return blake2b(canonical.encode(), digest_size=_DIGEST_BYTES, person=b"sidedraft-model").hexdigest()


def target_key(facts: TargetFacts) -> bytes:
    """16 bytes that seed every block's key with the target's identity as the verifier stated it.

    Verifiers that state different things (one a digest, another none) share nothing: the safe side.
    """
    canonical = repr(
        (
            facts.taps,
            facts.stream,
            facts.hidden_size,
            facts.vocab_size,
            facts.model_digest,
            facts.vocab_digest,
        )
    )
    return blake2b(canonical.encode(), digest_size=16, person=b"sidedraft-target").digest()


def _head_dim(hidden: object, heads: object) -> int | None:
    return hidden // heads if isinstance(hidden, int) and isinstance(heads, int) and heads > 0 else None


def _rope(config: Mapping[str, object]) -> dict[str, object] | None:
    """Rope as one mapping, nested by layer type where the config does so; None when theta is not stated."""
    for name in ("rope_parameters", "rope_scaling"):
        stated = config.get(name)
        if isinstance(stated, Mapping) and stated:
            break
    else:
        stated = {}
    nested = {str(k): v for k, v in stated.items() if isinstance(v, Mapping)}
    parts = nested or {"": stated}
    plain = {kind: _one_rope(config, part) for kind, part in parts.items()}
    return None if any(part["rope_theta"] is None for part in plain.values()) else dict(plain)


def _one_rope(config: Mapping[str, object], stated: Mapping[str, object]) -> dict[str, object]:
    rope = {str(k): v for k, v in stated.items() if v is not None and k != "type"}
    rope["rope_type"] = stated.get("rope_type") or stated.get("type") or "default"
    rope.setdefault("rope_theta", config.get("rope_theta"))
    partial = rope.pop("partial_rotary_factor", config.get("partial_rotary_factor"))
    if partial not in (None, 1, 1.0):
        rope["partial_rotary_factor"] = partial
    if rope["rope_type"] in ("llama3", "yarn", "longrope"):
        # Loaders move this length into the rope mapping; a file may keep it outside, or leave it implied.
        outside = config.get("original_max_position_embeddings") or config.get("max_position_embeddings")
        rope.setdefault("original_max_position_embeddings", outside)
    return rope


def _canonical(value: object) -> object:
    """Numbers as floats (10000 and 10000.0 are the same theta), tuples as lists, keys as text."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return float(value)
    if isinstance(value, Mapping):
        return {str(k): _canonical(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(v) for v in value]
    return repr(value)
