"""Write the demo's prompts: the same files every time.

    python demo/make_prompts.py

The task is the kind a small model does all day: a signup line becomes a JSON record. First names, last names
and cities of held-out prompts stand in no training prompt; the enumerated fields (role, plan, ...) share
their values, as such fields do, and phone numbers are random digits.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

HERE = Path(__file__).parent
TRAINING, HELD_OUT = 448, 48

VALUES = json.loads((HERE / "values.json").read_text())


def example(random_: random.Random, group: str) -> tuple[str, str]:
    """A signup line and its record, with names and city of the group."""
    names = {f"{part}_name": random_.choice(VALUES[group][part]) for part in ("first", "last")}
    fields = {"phone": f"555-{random_.randrange(1000, 10000)}", "city": random_.choice(VALUES[group]["city"])}
    fields |= {name: random_.choice(values) for name, values in VALUES["enumerated"].items()}
    line = ", ".join(f"{name}: {value}" for name, value in fields.items())
    record = json.dumps({**names, **fields, "active": True}, indent=2)
    return f"name: {names['first_name']} {names['last_name']}, {line}", record


def message(role: str, text: str) -> str:
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def lines(count: int, seed: int, group: str) -> list[str]:
    """Distinct signup lines."""
    random_ = random.Random(seed)
    found: dict[str, None] = {}
    while len(found) < count:
        found[example(random_, group)[0]] = None
    return list(found)


def main() -> None:
    shots = [example(random.Random(seed), "training") for seed in (1, 2)]
    prefix = message("system", "Convert the signup line to JSON.")
    prefix += "".join(message("user", line) + message("assistant", record) for line, record in shots)
    signup = {"prefix": prefix + "<|im_start|>user\n", "suffix": "<|im_end|>\n<|im_start|>assistant\n"}
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    chat = {**signup, "prefix": message("system", system) + "<|im_start|>user\n"}
    sets = [
        {"name": "trained-on", **signup, "prompts": lines(TRAINING, 11, "training")},
        {"name": "held-out", **signup, "prompts": lines(HELD_OUT, 12, "held_out")},
        {"name": "unrelated", **chat, "prompts": VALUES["unrelated"]},
    ]
    folder = HERE / "prompts"
    folder.mkdir(exist_ok=True)
    for one in sets:
        write(folder / f"{one['name']}.json", one)
    write(
        HERE / "prompts.json",
        [
            {
                "name": one["name"],
                "domain": one["name"] != "unrelated",
                "max_new_tokens": length,
                "prompts": [one["prefix"] + text + one["suffix"] for text in one["prompts"][:count]],
            }
            for one, count, length in zip(sets, (3, 4, 2), (150, 150, 64), strict=True)
        ],
    )


def write(path: Path, value: object) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n")


if __name__ == "__main__":
    main()
