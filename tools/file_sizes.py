"""One concept a file: fail when a source file is long, or files are long on average."""

from __future__ import annotations

import sys
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "src" / "sidedraft"
LONGEST = 400
MEAN = 150


def main() -> int:
    sizes = {path: len(path.read_text().splitlines()) for path in sorted(SOURCES.rglob("*.py"))}
    sizes = {path: lines for path, lines in sizes.items() if lines}
    mean = sum(sizes.values()) / len(sizes)
    longest = max(sizes, key=lambda path: sizes[path])
    print(
        f"{len(sizes)} files, mean {mean:.0f} lines (bar {MEAN}), longest {sizes[longest]} (bar {LONGEST}):"
    )
    for path in sorted(sizes, key=lambda path: -sizes[path])[:5]:
        print(f"  {sizes[path]:4d}  {path.relative_to(SOURCES)}")
    return int(mean >= MEAN or sizes[longest] > LONGEST)


if __name__ == "__main__":
    sys.exit(main())
