"""The scheduler's depth follows the breaker: a word in shared memory from the rank that talks.

vLLM's scheduler decides how many draft tokens the next step verifies, and lives in another process than the
rank that knows whether any will come. While none will, K is 0 and a step costs what it costs without
speculation. Under data parallelism the ranks must agree on K, which they could not: there it stays as
configured, and steps without drafts verify fillers.
"""

from __future__ import annotations

import logging
import mmap
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sidedraft.settings import runtime_directory
from sidedraft.transport.base import TransportError
from sidedraft.transport.zmq.unix_socket import prepare_folder

if TYPE_CHECKING:
    from sidedraft.integrations.vllm.config import VllmSettings

_log = logging.getLogger(__name__)

_BYTES = 4


class DepthWord:
    """An int32 that one process writes and another reads: a mapped file, removed once both have it."""

    def __init__(self, path: Path, *, create: bool) -> None:
        """Raises OSError: FileNotFoundError when it is to be read and nobody has made it."""
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW
        if create:
            # Anew: what a killed engine of the same name left behind is not ours to write to.
            path.unlink(missing_ok=True)
            flags |= os.O_CREAT | os.O_EXCL
        descriptor = os.open(path, flags, 0o600)
        try:
            if create:
                os.ftruncate(descriptor, _BYTES)
            memory = mmap.mmap(descriptor, _BYTES)
        finally:
            os.close(descriptor)
        self._cell = memoryview(memory).cast("i")
        if create:
            weakref.finalize(self, path.unlink, missing_ok=True)
        else:
            path.unlink(missing_ok=True)

    def get(self) -> int:
        return self._cell[0]

    def set(self, depth: int) -> None:
        self._cell[0] = depth


class DepthLookup:
    """In place of the scheduler's own table, and never above it: batch size -> draft tokens to schedule."""

    def __init__(self, table: Sequence[int] | None, most: int, word: DepthWord) -> None:
        """table: by batch size, as configured; None: `most` whatever the size."""
        self._table = table
        self._most = most
        self._word = word

    def __getitem__(self, batch: int) -> int:
        most = self._most if self._table is None else self._table[batch]
        return min(most, max(0, self._word.get()))


def publish(vllm_config: Any) -> DepthWord | None:
    """The word of this engine, at 0, for the rank that talks; None when the scheduler would not read it."""
    if vllm_config.parallel_config.data_parallel_size > 1:
        return None
    path = _path(vllm_config)
    try:
        prepare_folder(path.parent)
        return DepthWord(path, create=True)
    except (OSError, TransportError) as error:
        _log.warning("%s; steps without drafts will verify fillers", error)
        return None


def attach(scheduler: Any, settings: VllmSettings) -> None:
    """Let a scheduler, fresh from its constructor, take its depth from the word, if there is one.

    The workers are up by then: whoever talks has published it.
    """
    config = scheduler.vllm_config
    if config.parallel_config.data_parallel_size > 1:
        _log.warning(
            "%s: under data parallelism the depth stays as configured; steps without drafts verify fillers",
            settings.address,
        )
        return
    path = _path(config)
    try:
        word = DepthWord(path, create=False)
    except OSError as error:
        _log.warning("%s; steps without drafts will verify fillers", error)
        return
    scheduler.dynamic_sd_lookup = DepthLookup(scheduler.dynamic_sd_lookup, scheduler.num_spec_tokens, word)


def _path(vllm_config: Any) -> Path:
    """Known to the scheduler and to the workers, which get the same configuration."""
    engine = f"{vllm_config.instance_id}-{vllm_config.parallel_config.data_parallel_index}"
    return runtime_directory() / f"depth-{engine}"
