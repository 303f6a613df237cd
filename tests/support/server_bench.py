"""A server's two loops in one thread, over the fake network, in virtual time, on a real engine."""

from __future__ import annotations

from sidedraft.drafts.base import DraftShape
from sidedraft.engine import Engine, plan_memory
from sidedraft.server.counters import IoCounters
from sidedraft.server.dispatch import Dispatcher
from sidedraft.server.engine_loop import EngineLoop
from sidedraft.server.inbox import Inbox
from sidedraft.server.io_loop import IoLoop
from sidedraft.server.phases import Lifecycle, Phase
from sidedraft.server.quotas import Quotas
from sidedraft.server.reception import Reception
from sidedraft.server.schedule import Schedule, StepBounds
from sidedraft.server.service import Service
from sidedraft.transport.fake import FakeNetwork, VirtualClock
from sidedraft.wire import messages as m
from sidedraft.wire.handshake import ServerFacts
from support.fake_draft import FakeDraft, fake_shape
from support.wire_peer import WirePeer, hello

SLICE = 4096
BLOCK = 16


class View:
    """What pulses tell."""

    def __init__(self, loop: EngineLoop) -> None:
        self._loop = loop

    def progress(self) -> int:
        return self._loop.engine.stats().counters.steps

    def queued(self) -> int:
        return self._loop.queued


class ServerBench:
    """`io` and `engine_loop` are driven by `turn`; the model is "loaded" by `open`.

    Several may follow one another on one network, as a server that is restarted, each with its own epoch.
    """

    def __init__(
        self,
        *,
        requests: int = 16,
        bulk_credit: int = 1 << 16,
        clock: VirtualClock | None = None,
        network: FakeNetwork | None = None,
        epoch: int = 77,
    ) -> None:
        self.quotas = Quotas()
        """To be set before `open`."""
        self.clock = VirtualClock() if clock is None else clock
        self.network = FakeNetwork(self.clock) if network is None else network
        self.lifecycle = Lifecycle()
        self.counters = IoCounters()
        self.inbox = Inbox()
        self.listener = self.network.listen()
        self.dispatcher = Dispatcher(self.listener, self.lifecycle, epoch, self.counters, self.clock)
        self.io = IoLoop(self.listener, self.dispatcher, self.inbox, self.clock)
        self.draft = FakeDraft(fake_shape())
        plan = plan_memory(
            self.draft.shape,
            self.draft.dtype,
            kv_memory=1 << 20,
            max_requests=requests,
            block_size=BLOCK,
        )
        self.engine = Engine(self.draft, plan, clock=self.clock, poison=True)
        self.schedule = Schedule(StepBounds.of(plan, SLICE))
        self.engine_loop = EngineLoop(self.engine, self.schedule, self.inbox, self.io.reply, self.clock)
        shape = self.draft.shape
        self.facts = ServerFacts(
            software="server",
            epoch=epoch,
            target=m.TargetFacts(
                taps=shape.taps, hidden_size=shape.target_hidden_size, vocab_size=shape.vocab_size
            ),
            draft=m.DraftFacts(family="fake", layout=shape.layout.value, max_depth=shape.max_depth),
            max_depth=shape.max_depth,
            limits=m.SessionLimits(
                control_payload=1 << 14,
                bulk_payload=1 << 15,
                bulk_credit=bulk_credit,
                requests=requests,
                batch=64,
                context=self.engine.plan.max_position,
            ),
        )

    @property
    def shape(self) -> DraftShape:
        return self.draft.shape

    def open(self) -> None:
        """From here on sessions are possible."""
        reception = Reception(self.engine.sequencer(), self.quotas)
        self.io.open(Service(self.facts, reception), View(self.engine_loop))
        self.lifecycle.enter(Phase.READY)

    def hello(self, **changes: object) -> m.Hello:
        shape = self.shape
        given = {"family": "fake", "layout": shape.layout.value, "max_depth": shape.max_depth}
        return hello(shape.taps, shape.target_hidden_size, shape.vocab_size, **given, **changes)  # type: ignore[arg-type]

    def io_turn(self) -> None:
        self.io.turn(0.0)

    def turn(self) -> None:
        """Both loops, until nothing is left to do."""
        self.io.turn(0.0)
        while self.engine_loop.turn(0.0):
            pass
        self.io.turn(0.0)

    def peer(self, *, greet: bool = True) -> WirePeer:
        peer = WirePeer(self.network.connect(), self.turn)
        if greet:
            peer.greet(self.hello())
        return peer
