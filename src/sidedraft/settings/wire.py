"""Bounds of the wire: what either end accepts before it looks closer."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sidedraft.settings.base import Settings
from sidedraft.settings.errors import SettingsError
from sidedraft.settings.units import KIB, MIB, SIZE

Size = Annotated[int, Meta(ge=1, le=1 << 40, description="a number of bytes, at least 1", extra=SIZE)]
Count = Annotated[int, Meta(ge=1, le=1 << 24, description="a count, at least 1")]


class WireLimits(Settings, frozen=True, kw_only=True):
    """Sizes in bytes, counts as numbers. The server's go into `SessionLimits` of the handshake."""

    header: Size = 256 * KIB
    """Greatest header frame, on either lane."""
    control_rows: Size = 1 * MIB
    """An advance with more bytes of rows than this is cut and goes by the bulk lane."""
    control_payload: Size = 2 * MIB
    """Greatest payload frame on the control lane: `control_rows` and room for 256k token ids."""
    bulk_payload: Size = 4 * MIB
    """Greatest payload frame on the bulk lane."""
    bulk_credit: Size = 16 * MIB
    """Bytes of bulk payload that may be unacknowledged: four frames."""
    batch: Count = 4096
    """Advances or answers in one message."""
    requests: Count = 4096
    """Open requests of one session."""
    held: Count = 256
    """Advances of one request that may wait for a smaller number."""

    def check(self) -> None:
        if self.control_payload < self.control_rows:
            raise SettingsError("control_payload", self.control_payload, f"at least {self.control_rows}")
        if self.bulk_credit < self.bulk_payload:
            raise SettingsError("bulk_credit", self.bulk_credit, f"at least one frame of {self.bulk_payload}")
