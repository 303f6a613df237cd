"""A tokenizer of seven words, as a target's folder holds one."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer, models, pre_tokenizers

WORDS = ("<unk>", "<s>", "</s>", "user", "red", "fox", "dog")


def tiny_tokenizer(directory: Path, *, chat: bool) -> Path:
    """Write tokenizer files into `directory`: ids are places in `WORDS`, words are divided by spaces."""
    directory.mkdir(parents=True, exist_ok=True)
    vocabulary = {word: place for place, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "<unk>", "eos_token": "</s>"}
    if chat:
        template = "{% for message in messages %}user {{ message['content'] }}{% endfor %} user"
        config["chat_template"] = template
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory
