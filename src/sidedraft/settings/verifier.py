"""Settings of the verifier's side: its patience."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sidedraft.settings.base import Settings
from sidedraft.settings.errors import SettingsError
from sidedraft.settings.keys import KeyFile, check_keys
from sidedraft.settings.wire import WireLimits

Seconds = Annotated[float, Meta(gt=0, le=3600, description="seconds, above 0 and at most 3600")]
Factor = Annotated[float, Meta(ge=1, le=100, description="a factor from 1 to 100")]
Count = Annotated[int, Meta(ge=1, le=4096, description="a count from 1 to 4096")]
RowFormats = Annotated[
    tuple[Annotated[str, Meta(pattern=r"^(projected|(projected-)?(f32|bf16|f16|fp8))\Z")], ...],
    Meta(max_length=16, description="names such as fp8, projected or projected-fp8; see docs/drafts.md"),
]
"""`projected` alone means projected rows in the target's own dtype."""


class VerifierSettings(Settings, frozen=True, kw_only=True):
    """Deadlines and the failure ladder (design section 6). Times in seconds."""

    deadline: Seconds | None = None
    """A fixed deadline; None adapts it to what was observed."""
    deadline_factor: Factor = 4.0
    """Adaptive: this times the running median of proposal latency ..."""
    deadline_floor: Seconds = 0.020
    """... but not less than this"""
    deadline_ceiling: Seconds = 0.500
    """... and not more than this."""
    deadline_initial: Seconds = 0.500
    """Until `deadline_warmup` proposals were seen."""
    deadline_warmup: Count = 8
    late_lost: Seconds = 2.0
    """A request that is behind for so long is lost; `lost_after` says when this gives way to `deadline`."""
    reopen_in_flight: Count = 4
    """Lost requests that may be opening again at once."""
    breaker_late_steps: Count = 2
    """Consecutive steps in which every asked request was late, until the breaker opens."""
    retry_first: Seconds = 0.050
    """First wait before a retry; doubled each time, with jitter ..."""
    retry_cap: Seconds = 1.0
    """... up to this."""
    handshake_timeout: Seconds = 5.0
    """Without a reply to our hello, the connection counts as failed."""
    max_depth: Annotated[int, Meta(ge=1, le=64, description="a depth from 1 to 64")] = 64
    """Greatest depth ever asked for; the server's is agreed below it."""
    staging_segments: Annotated[int, Meta(ge=0, le=4096, description="a count from 0 to 4096")] = 128
    """Most send buffers, of a bulk frame each, that rows may wait in while the engine goes on: as many as the
    largest step has frames. Made when needed. 0: `submit` returns when the server has taken the rows in."""
    row_formats: RowFormats = ()
    """Preferred formats of rows, best first; those of the target's dtype follow."""
    sharing: bool = True
    """Context may be found by other requests and taken over from them; False: every request is private."""
    strict_identity: bool = False
    """Refuse a server whose target is only partly known to be ours."""
    server_key: KeyFile | None = None
    """File with the server's public key: encrypt, and speak with no other server."""
    client_key: KeyFile | None = None
    """File with this verifier's own secret key."""
    insecure_plain_text: bool = False
    """Allow a server on another host, without encryption."""
    limits: WireLimits = WireLimits()

    @property
    def lost_after(self) -> float:
        """Seconds without progress after which a request, or a bulk connection, is given up.

        Whoever waits longer than `late_lost` for a draft does not take the server for lost meanwhile.
        """
        return max(self.late_lost, self.deadline or 0.0)

    def check(self) -> None:
        check_keys(self.server_key, self.client_key, insecure_plain_text=self.insecure_plain_text)
        if self.deadline_floor > self.deadline_ceiling:
            raise SettingsError(
                "deadline_floor", self.deadline_floor, f"at most deadline_ceiling, {self.deadline_ceiling}"
            )
        if self.retry_first > self.retry_cap:
            raise SettingsError("retry_first", self.retry_first, f"at most retry_cap, {self.retry_cap}")
