"""A target that ends its reasoning by itself, and a draft that knows what follows, for structured output.

Which token is the end of reasoning is decided last: one that the target says early in its answers gets that
name. The draft says `a` after it, and after `a`, so that its blocks cross the end and, of a grammar of `a`s,
the grammar's end.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file

from sidedraft.targets.tapped import TappedTarget
from support.agreeing import agreeing_pair
from support.checkpoints import write_checkpoint
from support.vllm_matrix import letters
from support.vllm_parity import Pair, packed

VOCAB = 97
START, END = "<think>", "</think>"
SURE = 1e4
"""A bias that no logit outweighs."""
EARLY = range(2, 8)
"""Where in an answer the reasoning ends."""


def token(letter: str) -> int:
    """As `letters` counts them."""
    return ord(letter) - 32 + 3


@dataclass(frozen=True)
class Reasoning:
    """The pair, and prompts whose answers have the end of reasoning at a place of `EARLY`, and not before."""

    pair: Pair
    end: int
    prompts: list[list[int]]


def reasoning(folder: Path, count: int = 3) -> Reasoning:
    """Make all of it below a folder; raises LookupError when no token will do."""
    target, draft = agreeing_pair(folder, hidden=128)
    prompts = [[3 + (31 * one + 7 * at + at * at) % 90 for at in range(14)] for one in range(60)]
    answers = _greedily(TappedTarget.load(target, ()), prompts, EARLY.stop)
    end = _often_early(answers)
    chosen = [
        (prompt, answer)
        for prompt, answer in zip(prompts, answers, strict=True)
        if end in answer and answer.index(end) in EARLY and end not in prompt
    ][:count]
    if len(chosen) < count:
        raise LookupError(f"token {end} ends the reasoning of {len(chosen)} prompts only")
    letters(target, VOCAB)
    _name(target, {end: END, VOCAB - 1: START})
    _teach(draft, end, {answer[answer.index(end) - 1] for _, answer in chosen})
    return Reasoning(packed(draft, target, folder), end, [prompt for prompt, _ in chosen])


def _greedily(target: TappedTarget, prompts: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
    """Answers to prompts of one length."""
    batch, length = len(prompts), len(prompts[0])
    cache = target.new_cache(batch, length + tokens)
    new, lengths = torch.tensor(prompts), torch.zeros(batch, dtype=torch.int64)
    answers = []
    for _ in range(tokens):
        counts = torch.full((batch,), new.shape[1])
        logits = target.forward(cache, new, lengths, counts, heads="last").logits
        lengths = lengths + counts
        new = logits[:, -1].argmax(-1, keepdim=True)
        answers.append(new)
    found: list[list[int]] = torch.cat(answers, 1).tolist()
    return found


def _often_early(answers: Sequence[Sequence[int]]) -> int:
    """The token that most answers have at an early place first; none that a grammar of the tests has."""
    letter_a = token("a")
    others = [one for one in range(3, VOCAB - 1) if one != letter_a and chr(one - 3 + 32) not in "0123456789"]
    return max(
        others, key=lambda one: sum(one in answer and answer.index(one) in EARLY for answer in answers)
    )


def _name(target: Path, names: dict[int, str]) -> None:
    """Give tokens of the folder's tokenizer other words, which are never split."""
    file = target / "tokenizer.json"
    config = json.loads(file.read_text())
    words = {number: word for word, number in config["model"]["vocab"].items()} | names
    config["model"]["vocab"] = {word: number for number, word in sorted(words.items())}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    config["added_tokens"] += [{"id": number, "content": word} | flags for number, word in names.items()]
    file.write_text(json.dumps(config))


def _teach(draft: Path, end: int, before: set[int]) -> None:
    """After each of `before` comes the end; after it, and after `a`, comes `a`."""
    weights = load_file(draft / "model.safetensors")
    head = weights["markov_head.markov_w2.weight"].clone()
    for one in before:
        head[end, one] = SURE
    head[token("a"), [end, token("a")]] = SURE
    weights["markov_head.markov_w2.weight"] = head
    write_checkpoint(draft, json.loads((draft / "config.json").read_text()), weights)
