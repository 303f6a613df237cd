"""What is there once the model is loaded, and makes sessions possible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sidedraft.wire.handshake import ServerFacts

if TYPE_CHECKING:
    from sidedraft.server.reception import Reception


@dataclass(frozen=True, slots=True)
class Service:
    """Handed from the engine thread, which builds it, to the I/O thread, which owns it from then on."""

    facts: ServerFacts
    reception: Reception
