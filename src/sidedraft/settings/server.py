"""Settings of `sidedraft serve`."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from sidedraft.settings.base import Settings
from sidedraft.settings.engine import Depth, EngineSettings, Memory, Requests, Window
from sidedraft.settings.errors import SettingsError
from sidedraft.settings.keys import KeyFile
from sidedraft.settings.units import GIB, MIB
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
    secret_key: KeyFile | None = None
    """File with this server's secret key: everything is encrypted, and only `clients` come in."""
    clients: KeyFile | None = None
    """File that lists the clients' public keys and rights; read again when it changes."""
    http: HttpAddress = HTTP_ADDRESS
    kv_memory: Memory = 1 * GIB
    window: Window | None = None
    """Context rows that a proposal is given; None is the draft's own."""
    retain: Literal["window", "all"] = "window"
    """Which rows of a prompt are kept: those that proposals of its own request can see, or all, for requests
    that share a part of it. Verifiers send no others."""
    max_requests: Requests = 64
    session_requests: Requests | None = None
    """Of those, how many one session may have; None: all but an eighth, so that none takes every place."""
    session_bytes: Memory = 64 * MIB
    """Bytes of one session's small messages that may wait for the engine."""
    session_rows: Window | None = None
    """Context rows that one session's open requests may hold of those it sent; None for no bound."""
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
        if (self.secret_key is None) != (self.clients is None):
            field = "secret_key" if self.secret_key is None else "clients"
            raise SettingsError(field, None, "a file: secret_key and clients go together")
        if self.secret_key is not None and self.insecure_plain_text:
            raise SettingsError("insecure_plain_text", True, "either keys or plain text, not both")
        if self.clients is not None and self.namespaces != ("default",):
            raise SettingsError(
                "namespaces", self.namespaces, "none: the file of clients says who may use which"
            )
        if self.session_requests is not None and self.session_requests > self.max_requests:
            raise SettingsError(
                "session_requests", self.session_requests, f"at most max_requests, {self.max_requests}"
            )
        if self.session_bytes < WireLimits().control_payload:
            raise SettingsError(
                "session_bytes", self.session_bytes, f"at least a message, {WireLimits().control_payload}"
            )
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
        """The bounds offered to sessions."""
        share = self.max_requests - self.max_requests // 8
        return WireLimits(requests=self.session_requests or share)
