"""Record what versions of vLLM have of everything the integration relies on: names and signatures, no code.

    python tools/extract_vllm_contract.py [VERSION ...]

The sources come from the package index (`tools/vllm_sources.py`); the records go to
tests/integrations/vllm/contract, where the tests compare them with the contract.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools")]

import vllm_sources  # noqa: E402 - the path comes first
from sidedraft.integrations.vllm.contract import CONTRACT  # noqa: E402
from support import vllm_contract  # noqa: E402

VERSIONS = ("0.32.0", "0.33.0")
"""One of each supported minor version."""


def main() -> int:
    failed = 0
    for version in sys.argv[1:] or VERSIONS:
        try:
            root = vllm_sources.obtain(version)
        except vllm_sources.SourcesUnavailableError as error:
            print(f"vLLM {version}: {error}")
            return 1
        facts = vllm_contract.merged(CONTRACT, root)
        record = {
            "origin": f"source distribution of vllm {version}",
            "requires": vllm_sources.requirements(root),
            "facts": facts,
        }
        path = vllm_contract.RECORDS / f"{version}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(record, indent=1) + "\n")
        wrong = vllm_contract.complaints(facts)
        print(f"vLLM {version}: {len(facts)} facts in {path.relative_to(ROOT)}, {len(wrong)} not as expected")
        print(*(f"  {line}" for line in wrong), sep="\n", end="\n" if wrong else "")
        failed += bool(wrong)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
