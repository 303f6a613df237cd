"""Ceilings of the protocol: no agreement can go beyond them.

What a session may really use is agreed in the handshake (`messages.SessionLimits`) and lies below. They are
constants because they guard decoding itself, before anything was agreed and before anything is allocated.
"""

from __future__ import annotations

from typing import Final

MAX_HEADER: Final = 256 * 1024
"""Bytes of a header frame. The worst `Answers` header of `MAX_BATCH` answers fits (tests/wire)."""

MAX_PAYLOAD: Final = 64 * 1024 * 1024
"""Bytes of a payload frame."""

MAX_BATCH: Final = 4096
"""Advances, answers or releases in one message."""

MAX_DEPTH: Final = 256
"""Draft tokens of one proposal."""

MAX_POSITION: Final = 2**31 - 1
"""Absolute positions, and what counts them."""

MAX_VOCABULARY: Final = 2**31 - 1
"""Token ids are int32 and below this."""

MAX_WIDTH: Final = 2**20
"""The target's hidden size."""

MAX_TAPS: Final = 64
"""Aux states of a row."""

MAX_LIST: Final = 64
"""Names in a list of a handshake message: row formats, features."""

MAX_NAME: Final = 64
"""Characters of a name: namespace, label, feature, family, stream, format."""

MAX_DETAIL: Final = 512
"""Characters of an explanation in words."""

MAX_ID: Final = 2**63 - 1
"""Ids and counters: requests, generations, numbers, sessions, epochs, serials."""

MAX_MICROSECONDS: Final = 2**31 - 1
"""Durations on the wire, about 36 minutes."""

ALIGNMENT: Final = 64
"""Where a payload's second part begins, so that rows can be read in place."""
