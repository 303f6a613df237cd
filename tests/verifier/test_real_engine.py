"""The real verifier against the real server and engine, under faults, in virtual time.

The fake draft's first token says what attention was given; so every draft that is applied can be traced to
the tokens and rows it was computed from.
"""

from __future__ import annotations

from random import Random

import pytest
import torch

from sidedraft.settings import VerifierSettings
from sidedraft.transport.base import Lane
from sidedraft.transport.fake import DROP, DUPLICATE, Direction, delayed, overtaken
from sidedraft.verifier.facts import VerifierFacts
from sidedraft.verifier.state.outcome import Draft
from sidedraft.wire.messages import DraftFacts, TargetFacts
from support.ladder_world import IMPATIENT, SETTINGS, STEP_TIME, Request, World
from support.model_server import rows_of
from support.server_bench import ServerBench


class RealServer:
    """The server's loops, started and killed like a process."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.mute = False
        self.epoch = 0
        self.refused = 0
        self.bench = self.start()

    def start(self) -> ServerBench:
        self.epoch += 1
        bench = ServerBench(
            clock=self._world.clock, network=self._world.network, epoch=self.epoch, bulk_credit=1 << 17
        )
        bench.open()
        self.bench = bench
        self.alive = True
        return bench

    def kill(self) -> None:
        self.bench.listener.close()
        self.alive = False

    def next_due(self) -> None:
        """It works whenever it is looked at."""
        return

    def turn(self) -> None:
        if self.alive and not self.mute:
            self.bench.turn()


def real_facts() -> VerifierFacts:
    shape = ServerBench().shape
    return VerifierFacts(
        target=TargetFacts(
            taps=shape.taps, hidden_size=shape.target_hidden_size, vocab_size=shape.vocab_size
        ),
        draft=DraftFacts(family="fake", layout=shape.layout.value, max_depth=shape.max_depth),
        max_position=4096,
        row_formats=("f32",),
    )


class RealWorld(World):
    """Drafts are judged by what the engine recorded of them."""

    def __init__(self, seed: int, settings: VerifierSettings) -> None:
        self.traced = 0
        self.holes = 0
        super().__init__(seed, settings, told=real_facts())

    def make_server(self, service: float) -> RealServer:  # type: ignore[override]
        return RealServer(self)

    def is_right(self, request: Request, draft: list[int]) -> bool:
        bench: ServerBench = self.server.bench
        seen = bench.draft.seen[draft[0]]
        self.traced += 1
        self.holes += len(request.tokens) - len(seen.positions)
        aux = torch.from_numpy(rows_of(0, request.tokens))[seen.positions]
        return (
            (seen.anchor, seen.anchor_position) == (request.anchor, len(request.tokens))
            and seen.positions.tolist() == sorted(set(seen.positions.tolist()))
            and torch.equal(seen.rows, bench.draft.rows_of(aux, seen.positions))
        )


@pytest.mark.parametrize("seed", range(6))
def test_every_applied_draft_was_computed_from_accepted_tokens_and_rows_only(seed: int) -> None:
    w = RealWorld(seed, IMPATIENT if seed % 2 else SETTINGS)
    w.connect()
    random = Random(seed)
    for prompt in (5, 40, 700):
        w.start(prompt)
    for _ in range(60):
        fault = random.randrange(16)
        direction = random.choice(list(Direction))
        script = w.channel.links[random.choice(list(Lane)), direction].script
        match fault:
            case 0:
                script.extend([delayed(random.randint(1, 5) * STEP_TIME)] * 2)
            case 1:
                script.append(overtaken(random.randint(1, 3) * STEP_TIME))
            case 2:
                script.extend([DUPLICATE, DROP])
            case 3:
                w.server.kill()
                w.step()
                w.server.start()
            case 4:
                w.network.cut(w.channel)
            case 5:
                w.server.mute = not w.server.mute
            case 6:
                request = random.choice(list(w.requests.values()))
                request.rewind(random.randint(1, 30))
                w.take(w.submit([request]))
            case 7 if len(w.requests) < 6:
                w.start(random.choice([0, 20, 300]))
            case 8 if len(w.requests) > 2:
                w.release(random.choice(list(w.requests.values())))
        w.step(depth=random.choice([0, 2, 3, 3]))
    w.server.mute = False
    for link in w.channel.links.values():
        link.script.clear()
    for request in list(w.requests.values()):
        w.until_drafted(request)
    assert w.stale == 0
    assert w.overrun <= 1e-9
    assert w.waits_while_open == 0
    assert w.traced >= 20
    assert w.counters.refused == 0, "the server agreed with every advance that it was sent"


def test_after_a_mere_disconnection_the_context_comes_back_whole() -> None:
    w = RealWorld(0, SETTINGS)
    w.connect()
    request = w.start(64)
    w.take(w.submit())
    for _ in range(3):
        w.step()
    w.network.cut(w.channel)
    w.until_drafted(request)
    for _ in range(3):
        assert isinstance(w.step()[request.name], Draft)
    seen = w.server.bench.draft.seen[-1]
    blocks = len(request.tokens) // 16 * 16
    # Only the block that was not full when the connection broke can be missing, and what was in flight.
    assert len(seen.positions) >= blocks - 32
    assert w.server.bench.engine.stats().counters.rows_restored >= 64
    assert w.stale == 0


def test_after_a_restart_a_running_request_goes_on_cold() -> None:
    w = RealWorld(0, SETTINGS)
    w.connect()
    request = w.start(64)
    w.take(w.submit())
    w.server.kill()
    w.step()
    w.server.start()
    w.until_drafted(request)
    assert isinstance(w.step()[request.name], Draft)
    assert w.holes > 0
    assert w.stale == 0
