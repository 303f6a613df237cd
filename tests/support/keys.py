"""Key files, lists of clients, and ends that use them."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from sidedraft.transport.clients import ClientList
from sidedraft.transport.keys import KeyPair, VerifierKeys, read_secret, write_pair
from sidedraft.transport.zmq import ZmqChannel, ZmqListener

ANY_PORT = "tcp://127.0.0.1:0"


@dataclass
class KeyRing:
    """A server's pair, and its list of clients, in files of a folder."""

    folder: Path
    server: KeyPair = field(init=False)
    clients: Path = field(init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.server, self.secret_file, self.public_file = write_pair(self.folder, "server")
        self.clients = self.folder / "clients"
        self.list()

    def make(self, name: str) -> KeyPair:
        """A client's pair, in no list yet."""
        return write_pair(self.folder, name)[0]

    def secret_of(self, name: str) -> Path:
        return self.folder / f"{name}.secret"

    def list(self, *names: str, text: str = "", **namespaces: str) -> None:
        """Write the list of clients: these names, `namespaces` by name, and `text` at the end."""
        lines = [f"{name} {self._public(name)}" for name in names]
        lines += [f"{name} {self._public(name)} {spaces}" for name, spaces in namespaces.items()]
        self.clients.write_text("\n".join([*lines, text]) + "\n")
        self.clients.chmod(0o644)

    def listen(self, address: str = ANY_PORT) -> ZmqListener:
        return ZmqListener(address, keys=(self.server, ClientList(self.clients)))

    def keys(self, name: str) -> VerifierKeys:
        return VerifierKeys(self.server.public, read_secret(self.secret_of(name)))

    def connect(self, listener: ZmqListener, name: str) -> ZmqChannel:
        return ZmqChannel(listener.address, keys=self.keys(name))

    def _public(self, name: str) -> str:
        return read_secret(self.secret_of(name)).public
