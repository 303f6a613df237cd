"""Addresses of a draft server: how they are written, what is allowed, and which endpoint serves which lane.

`ipc:///run/user/1000/sidedraft/draft.sock` is served at that path (control) and at the path with `.bulk`
behind it; `tcp://127.0.0.1:7000` at that port (control) and at the next one (bulk).
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path

from sidedraft.settings import runtime_directory
from sidedraft.transport.base import Lane, TransportError

BULK_SUFFIX = ".bulk"

MAX_PATH = 107 - len(BULK_SUFFIX)
"""Bytes of an ipc path: `sun_path` of Linux holds 108 with the closing zero, and the bulk path is longer."""

MAX_PORT = 65534
"""The bulk lane needs the port after it."""

_TCP = re.compile(r"(\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9_.*-]+)):(?P<port>[0-9]{1,5})")


class AddressError(TransportError):
    """An address cannot be used."""

    def __init__(self, value: object, expected: str) -> None:
        super().__init__(f"address: {str(value)[:200]!r} is not allowed; expected {expected}")
        self.value = value
        self.expected = expected


@dataclass(frozen=True, slots=True)
class IpcAddress:
    """Unix sockets at an absolute path; the file system's permissions decide who may connect."""

    path: Path

    def lane_path(self, lane: Lane) -> Path:
        return self.path if lane is Lane.CONTROL else Path(f"{self.path}{BULK_SUFFIX}")

    def endpoint(self, lane: Lane) -> str:
        """As libzmq writes it."""
        return f"ipc://{self.lane_path(lane)}"

    def __str__(self) -> str:
        return f"ipc://{self.path}"


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A host and the port of the control lane; port 0 lets a listener choose."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """True when no other host can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.host

    def lane_port(self, lane: Lane) -> int:
        return self.port if lane is Lane.CONTROL else self.port + 1

    def endpoint(self, lane: Lane) -> str:
        """As libzmq writes it."""
        return f"tcp://{self._written_host}:{self.lane_port(lane)}"

    def __str__(self) -> str:
        return f"tcp://{self._written_host}:{self.port}"

    @property
    def _written_host(self) -> str:
        return f"[{self.host}]" if self.is_ipv6 else self.host


Address = IpcAddress | TcpAddress


def default_address() -> str:
    """An ipc address in the user's own runtime directory, which a listener creates for this user only."""
    return f"ipc://{runtime_directory() / 'draft.sock'}"


def parse_address(text: str, *, open_to_others: bool = False) -> Address:
    """Read `ipc://PATH` or `tcp://HOST:PORT`; raises AddressError.

    Addresses of other hosts, and those that other hosts reach, are refused unless `open_to_others` is set:
    when there are keys, or when a flag says that the link is encrypted by other means.
    """
    scheme, separator, rest = text.partition("://")
    if separator and scheme == "ipc":
        return _parse_ipc(text, rest)
    if separator and scheme == "tcp":
        return _parse_tcp(text, rest, open_to_others)
    raise AddressError(text, "ipc://PATH or tcp://HOST:PORT")


def for_binding(address: Address) -> Address:
    """Refuse what only a channel can use; AddressError. libzmq binds to numbers, a name may mean several."""
    if isinstance(address, TcpAddress) and address.host != "*":
        try:
            ipaddress.ip_address(address.host)
        except ValueError:
            raise AddressError(address, "a numeric host to bind to, such as tcp://127.0.0.1:PORT") from None
    return address


def for_connecting(address: Address) -> Address:
    """Refuse what only a listener can use; AddressError: a port to be chosen, or every interface."""
    if isinstance(address, TcpAddress) and (address.port == 0 or address.host == "*"):
        raise AddressError(address, "the host and port of a server to connect to")
    return address


def _parse_ipc(text: str, rest: str) -> IpcAddress:
    # "@name" (abstract) has no permissions and "*" no name that a peer could be told.
    if not rest.startswith("/") or "\0" in rest or rest.endswith("/"):
        raise AddressError(text, "ipc:// and the absolute path of a socket file")
    try:
        length = len(rest.encode())
    except UnicodeEncodeError:  # bytes of a command line that are no UTF-8, which libzmq could not be told
        raise AddressError(text, "a path in UTF-8") from None
    if length > MAX_PATH:
        raise AddressError(text, f"a path of at most {MAX_PATH} bytes, not {length}")
    return IpcAddress(Path(rest))


def _parse_tcp(text: str, rest: str, open_to_others: bool) -> TcpAddress:
    found = _TCP.fullmatch(rest)
    if found is None or int(found["port"]) > MAX_PORT:
        raise AddressError(text, f"tcp://HOST:PORT with a port up to {MAX_PORT} (the next one is used too)")
    host = found["v6"] or found["host"]
    if found["v6"]:
        try:
            host = str(ipaddress.IPv6Address(host))
        except ValueError:
            raise AddressError(text, "an IPv6 address in the brackets") from None
    elif host == "localhost":
        host = "127.0.0.1"
    address = TcpAddress(host, int(found["port"]))
    if not address.is_loopback and not open_to_others:
        raise AddressError(
            text,
            "ipc, or tcp to this host only: others could read and forge what is sent. Keys encrypt it (see "
            "`sidedraft keys`); insecure_plain_text is for links that are encrypted by other means",
        )
    return address
