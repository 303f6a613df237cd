"""The variables of the reference fork's remote drafts, still understood (deprecated).

`VLLM_K3_DRAFT_*` served both of its families, `VLLM_K3_DSPARK_*` dspark only and after the other; some had
`REMOTE_` in their names. As in the fork, all of them mean nothing without an address.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Collection, Iterator, Mapping

_log = logging.getLogger(__name__)

PREFIXES = ("VLLM_K3_DRAFT_REMOTE_", "VLLM_K3_DRAFT_", "VLLM_K3_DSPARK_REMOTE_", "VLLM_K3_DSPARK_")
"""Best first."""

NAMES = {
    "ADDRESS": "address",
    "TIMEOUT_MS": "deadline_ms",
    "TIMING_LOG_INTERVAL": "timing_log_interval",
    "ASYNC_PREFILL_INGEST": None,
}
"""The fork's names and ours; None is understood and without effect: prompts are always ingested while the
engine goes on."""


def read(environ: Mapping[str, str], method: str, known: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Variable, setting and value of each alias in use, less what is `known` from better sources."""
    found = {
        suffix: variable
        for prefix in reversed(PREFIXES)
        for suffix in NAMES
        if environ.get(variable := prefix + suffix) and (method == "dspark" or "DSPARK" not in prefix)
    }
    if not found or not ({"address"} & set(known) or "ADDRESS" in found):
        return
    _say_deprecated(tuple(sorted((variable, NAMES[suffix] or "") for suffix, variable in found.items())))
    for suffix, variable in found.items():
        name = NAMES[suffix]
        if name is not None and name not in known:
            yield variable, name, environ[variable]


@functools.cache  # once a process, though it is read several times
def _say_deprecated(used: tuple[tuple[str, str], ...]) -> None:
    instead = (
        f"{old} is SIDEDRAFT_{new.upper()} now" if new else f"{old} has no effect" for old, new in used
    )
    _log.warning("deprecated variables: %s", ", ".join(instead))
