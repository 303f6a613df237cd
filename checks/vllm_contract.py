"""What the vLLM integration relies on is in every supported version: from the sources on the package index.

Names, signatures and call sites, by syntax tree (`sidedraft.integrations.vllm.contract`). Bar: every item as
the contract has it, and as it is recorded for the tests. The first run downloads 50 MB a version.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools")]

import vllm_sources  # noqa: E402 - the path comes first
from sidedraft.integrations.vllm.contract import CONTRACT  # noqa: E402
from support import vllm_contract  # noqa: E402


def main() -> int:
    failed = 0
    for version in vllm_contract.VERSIONS:
        try:
            facts = vllm_contract.merged(CONTRACT, vllm_sources.obtain(version))
        except vllm_sources.SourcesUnavailableError as error:
            print(f"vLLM {version}: no sources, nothing checked: {error}")
            failed += 1
            continue
        recorded = vllm_contract.recorded(version)
        wrong = vllm_contract.complaints(facts)
        wrong += [f"{name}: recorded otherwise" for name in facts if facts[name] != recorded.get(name)]
        print(f"vLLM {version}: {len(CONTRACT)} items, {len(wrong)} not as expected (bar: 0)")
        print(*(f"  {line}" for line in wrong), sep="\n", end="\n" if wrong else "")
        failed += bool(wrong)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
