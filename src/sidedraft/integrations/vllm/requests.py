"""Which requests the engine has, as its own request table sees them come and go.

vLLM's `RequestState` is told of every end: finished, aborted, preempted, replaced by a streaming update; also
in steps that run nothing. A request that comes again under its id, with other tokens perhaps, is another one
here. Slots are not looked at: they are reused at once.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from sidedraft.integrations.vllm.identity import UNKNOWN, Identity, identify
from sidedraft.integrations.vllm.late import replace

_log = logging.getLogger(__name__)

Release = Callable[[Iterable[Hashable]], None]


@dataclass(slots=True, eq=False)
class Known:
    """One request between its coming and its going."""

    identity: Identity
    key: Hashable = None
    """Names it to the drafter; None while the drafter does not know it, or knows what is not certain."""
    committed: int = 0
    """Positions stated under that key."""
    fit: bool = True
    """All its tokens are ids of the target, so that it can be stated."""
    doubtful: bool = False
    """Its beginning, or steps of it, went by without being stated."""


class RequestTable:
    """Requests by vLLM's id. Used by the thread that runs the model.

    Args:
        release: tells the drafter of keys that are over.
    """

    def __init__(self, release: Release) -> None:
        self._release = release
        self._known: dict[str, Known] = {}
        self._announced: dict[str, Identity] = {}
        self._opened = 0

    def announce(self, new_requests: Iterable[Any]) -> None:
        """New-request data of those that are about to be added."""
        self._announced = {new.req_id: identify(new) for new in new_requests}

    def added(self, request_id: str) -> None:
        """It came, or came again."""
        self.removed(request_id)
        self._known[request_id] = Known(self._announced.pop(request_id, UNKNOWN))

    def removed(self, request_id: str) -> None:
        """It went; ids that are not there are ignored, as vLLM does."""
        known = self._known.pop(request_id, None)
        if known is not None:
            self._forget([known])

    def find(self, request_id: str) -> Known:
        """Raises KeyError for one that never came."""
        return self._known[request_id]

    def open(self, request_id: str, known: Known) -> None:
        """Give it a key: it is about to be stated from its beginning."""
        self._opened += 1
        known.doubtful = False
        known.key = (request_id, self._opened)

    def doubt(self, request_ids: Iterable[str] | None = None) -> None:
        """What was stated of these, or of all, may not be what they are now: they are opened again."""
        ids = self._known if request_ids is None else request_ids
        self._forget([known for one in ids if (known := self._known.get(one)) is not None])

    def _forget(self, gone: list[Known]) -> None:
        keys = [known.key for known in gone if known.key is not None]
        for known in gone:
            known.key = None
            known.committed = 0
            known.doubtful = True
        if keys:
            self._release(keys)


def watch(req_states: Any, table: RequestTable) -> None:
    """Let the table see what is added to and removed from this `RequestState`."""
    add, remove = req_states.add_request, req_states.remove_request

    @functools.wraps(add)
    def add_request(req_id: str, *args: Any, **kwargs: Any) -> Any:
        result = add(req_id, *args, **kwargs)
        _safely(table.added, req_id)
        return result

    @functools.wraps(remove)
    def remove_request(req_id: str) -> Any:
        _safely(table.removed, req_id)
        return remove(req_id)

    req_states.add_request, req_states.remove_request = add_request, remove_request


def announce_new_requests(runner_class: Any) -> None:
    """Let the speculator of every runner of this class see new-request data before it is taken in.

    The request table is told no more of a request than its tokens.
    """

    def wrap(original: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
        @functools.wraps(original)
        def add_requests(self: Any, scheduler_output: Any) -> Any:
            announce = getattr(self.speculator, "announce", None)
            if announce is not None:
                _safely(announce, scheduler_output.scheduled_new_reqs)
            return original(self, scheduler_output)

        return add_requests

    replace(runner_class, "add_requests", wrap)


def _safely(action: Callable[[Any], None], argument: Any) -> None:
    """The engine goes on whatever happens here."""
    try:
        action(argument)
    except Exception:
        _log.exception("a change of the request table was not understood")
