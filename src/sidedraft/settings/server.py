"""Settings of `sidedraft serve`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from sidedraft.settings.base import Settings
from sidedraft.settings.engine import Depth, EngineSettings, Memory, Requests, Window
from sidedraft.settings.errors import SettingsError
from sidedraft.settings.units import GIB
from sidedraft.settings.wire import WireLimits

HTTP_OFF = "off"
HTTP_ADDRESS = "127.0.0.1:8091"

Device = Annotated[
    str, Meta(pattern=r"^(auto|cpu|cuda(:[0-9]{1,3})?)\Z", description="auto, cpu, cuda or cuda:N")
]
HttpAddress = Annotated[
    str,
    Meta(pattern=r"^(off|(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):[0-9]{1,5})\Z", description="HOST:PORT or off"),
]
Namespace = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,64}\Z")]
Namespaces = Annotated[
    tuple[Namespace, ...], Meta(min_length=1, description="names of 1 to 64 letters, digits, '.', '_', '-'")
]
Folder = Annotated[str, Meta(min_length=1, description="the path of a folder")] | None
Milliseconds = Annotated[int, Meta(ge=1, le=600_000, description="milliseconds from 1 to 600000")]


class ServerSettings(Settings, frozen=True, kw_only=True):
    """Everything a draft server is told. Either `draft` and `target` or `bundle` name the weights."""

    draft: Folder = None
    target: Folder = None
    bundle: Folder = None
    device: Device = "auto"
    """`auto`: a GPU when torch sees one, else the CPU."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """`auto`: float32 on the CPU, bfloat16 on a GPU."""
    threads: Annotated[int, Meta(ge=1, le=1024, description="a count from 1 to 1024")] | None = None
    """Threads that torch computes with; None leaves its own choice."""
    bind: Annotated[str, Meta(min_length=1, description="ipc://PATH or tcp://HOST:PORT")] | None = None
    """Where verifiers connect; None is an ipc socket in the runtime directory."""
    insecure_plain_text: bool = False
    """Allow `bind` to an address other hosts can reach, without encryption."""
    http: HttpAddress = HTTP_ADDRESS
    kv_memory: Memory = 1 * GIB
    window: Window | None = None
    """Context rows that a proposal is given; None is the draft's own."""
    retain: Literal["window", "all"] = "window"
    """Which rows of a prompt are kept: those that proposals of its own request can see, or all, for requests
    that share a part of it. Verifiers send no others."""
    max_requests: Requests = 64
    max_depth: Depth | None = None
    block_size: Literal[16, 32, 64, 128] = 16
    namespaces: Namespaces = ("default",)
    """Names that a verifier may ask for; requests share context inside one only."""
    strict_identity: bool = False
    """Refuse verifiers whose target is only partly known to be the draft's."""
    vllm_compat: bool = False
    """Read the causal flag of a speculators checkpoint as vLLM 0.32 does, to compare with its drafting."""
    heartbeat_ms: Milliseconds = 200
    lease_ms: Milliseconds = 5000
    """A session that is silent for so long is over; its requests are released."""
    exit_after_load: bool = False
    skip_smoke_test: bool = False

    def check(self) -> None:
        if self.bundle is None:
            if self.draft is None:
                raise SettingsError("draft", None, "a folder with a draft, or --bundle with a bundle")
            if self.target is None:
                raise SettingsError("target", None, "a folder with the target (or use --bundle)")
        elif self.draft is not None or self.target is not None:
            raise SettingsError("bundle", self.bundle, "either --bundle or --draft and --target, not both")
        if self.lease_ms < 2 * self.heartbeat_ms:
            raise SettingsError("lease_ms", self.lease_ms, f"at least two heartbeats of {self.heartbeat_ms}")
        if self.http != HTTP_OFF and int(self.http.rpartition(":")[2]) > 65535:
            raise SettingsError("http", self.http, "a port up to 65535")

    def engine(self) -> EngineSettings:
        """The part that sizes the engine."""
        return EngineSettings(
            kv_memory=self.kv_memory,
            max_requests=self.max_requests,
            max_depth=self.max_depth,
            window=self.window,
            block_size=self.block_size,
        )

    def wire(self) -> WireLimits:
        """The bounds offered to sessions: no session may hold more requests than the engine has."""
        return WireLimits(requests=self.max_requests)
