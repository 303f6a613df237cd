"""The failure ladder under the fake transport, in virtual time.

Every scenario is played at every step of a run: answers late by 1 to 5 steps, lost, duplicated, reordered,
advances lost, the server restarted or stopped, connections cut; then random mixtures of all of them. Bars:
no draft applied to another base than its own, no wait past a deadline, no wait while the breaker is open,
drafting resumed in the same generation after late and in a new one after lost.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import msgspec

from sidedraft.transport.base import Lane
from sidedraft.transport.fake import DROP, DUPLICATE, Direction, Fate, delayed, overtaken
from support.ladder_world import IMPATIENT, SETTINGS, STEP_TIME, Request, World

STEPS = 12
"""Steps of a run; each scenario is played at each of them."""

CRAMPED = msgspec.structs.replace(IMPATIENT, staging_segments=1)
"""A single send buffer: long prompts have to wait for it."""

HEALING = 12.0
"""Virtual seconds in which drafting must have resumed after a mixture of faults ..."""

PROMPT = 1.0
"""... after a single one, which is known at once or over soon ..."""

DOUBTFUL = SETTINGS.late_lost + 1.0
"""... and after one that shows in nothing but silence."""


@dataclass
class Figures:
    """What all scenarios gave."""

    scenarios: Counter[str] = field(default_factory=Counter)
    drafts: int = 0
    stale: int = 0
    overrun: float = 0.0
    waits_while_open: int = 0
    pressed: int = 0
    reopening: int = 0
    confused: int = 0
    same_generation: int = 0
    new_generation: int = 0
    wrong_generation: list[str] = field(default_factory=list)
    not_resumed: list[str] = field(default_factory=list)
    slowest: float = 0.0

    def add(self, world: World) -> None:
        self.drafts += world.counters.drafted
        self.stale += world.stale
        self.overrun = max(self.overrun, world.overrun)
        self.waits_while_open += world.waits_while_open
        self.pressed += world.pressed
        self.reopening = max(self.reopening, world.reopening)
        self.confused += len(world.server.confused)


def answers(world: World, *fates: Fate, direction: Direction = Direction.DOWN) -> None:
    world.channel.links[Lane.CONTROL, direction].script.extend(fates)


def restart(world: World) -> None:
    world.server.kill()
    world.step()
    world.server.start()


def stop_for_a_while(world: World) -> None:
    world.server.mute = True
    for _ in range(6):
        world.step()
    world.server.mute = False


def fill_the_queue(world: World) -> None:
    """The server reads nothing until the transport takes no message; then it reads on at once."""
    world.server.mute = True
    world.sleep(STEP_TIME)
    refused = world.counters.refused_sends
    for _ in range(20):
        for request in world.requests.values():
            request.grow()
        world.submit(depth=0)
        world.turn()
        if world.counters.refused_sends > refused:
            break
    world.server.mute = False


def answer_after_reopening(world: World) -> None:
    """The server takes longer than the verifier's patience: what it says of the old generation comes when
    the new one is under way, and has reached the same numbers."""
    world.server.service = SETTINGS.late_lost + 0.6
    world.step()
    world.server.service = 0.004


def lose_an_advance(world: World) -> None:
    """Heartbeats go the same way: lose messages until one of them was an advance."""
    late = world.counters.late
    for _ in range(3):
        answers(world, DROP, direction=Direction.UP)
        world.step()
        if world.counters.late > late:
            return


Scenario = Callable[[World], object]

LATE: dict[str, Scenario] = {
    **{
        f"answer late by {n} steps": lambda w, n=n: answers(w, delayed(n * STEP_TIME))  # type: ignore[misc]
        for n in range(1, 6)
    },
    **{
        f"answers overtaken by {n} steps": lambda w, n=n: answers(w, *[overtaken(n * STEP_TIME)] * 3)  # type: ignore[misc]
        for n in range(1, 6)
    },
    "answer lost": lambda w: answers(w, DROP),
    "answers duplicated": lambda w: answers(w, *[DUPLICATE] * 3),
    "advances duplicated": lambda w: answers(w, *[DUPLICATE] * 3, direction=Direction.UP),
    "advances overtaken": lambda w: answers(w, *[overtaken(2 * STEP_TIME)] * 2, direction=Direction.UP),
    "server stopped for six steps": stop_for_a_while,
}
"""Afterwards every request is in the generation it was in."""

SILENT: dict[str, Scenario] = {
    "advance lost": lose_an_advance,
    "answers of the generation before": answer_after_reopening,
}

LOST: dict[str, Scenario] = {
    **SILENT,
    "server restarted": restart,
    "control queue full": fill_the_queue,
    "connections cut": lambda w: w.network.cut(w.channel),
    "control connection cut": lambda w: w.network.cut(w.channel, Lane.CONTROL),
    "bulk connection cut": lambda w: w.network.cut(w.channel, Lane.BULK),
}
"""Afterwards every request is in the next one."""


def play(figures: Figures, name: str, scenario: Scenario, at: int, lost: bool) -> None:
    """One scenario at one step of a run of three requests, one of them with a long prompt."""
    world = World(seed=at, settings=IMPATIENT)
    world.connect()
    requests = [world.start(8), world.start(8), world.start(150)]
    world.take(world.submit())
    for _ in range(at):
        world.step()
    before = {request: world.state(request).generation for request in requests}
    scenario(world)
    world.step()
    drafts = {request: request.drafts for request in requests}
    begun = world.clock()
    resumed(world, requests, drafts, name, at, figures, DOUBTFUL if name in SILENT else PROMPT)
    figures.slowest = max(figures.slowest, world.clock() - begun)
    figures.scenarios[name] += 1
    for request in requests:
        moved = world.state(request).generation - before[request]
        if moved == int(lost):
            figures.new_generation += lost
            figures.same_generation += not lost
        else:
            figures.wrong_generation.append(f"{name}, step {at}: {moved} generations further")
    figures.add(world)


def resumed(
    world: World,
    requests: list[Request],
    drafts: dict[Request, int],
    name: str,
    at: int,
    figures: Figures,
    within: float,
) -> None:
    until = world.clock() + within
    while any(request.drafts <= drafts[request] for request in requests) and world.clock() < until:
        world.step()
    if world.clock() >= until:
        figures.not_resumed.append(f"{name}, step {at}: {world.reasons(requests[0])}")


def move_on(world: World, after: float) -> None:
    """The engine states its next step before it has taken the drafts of the last."""
    waiting = world.submit()
    world.sleep(after)
    for request in world.requests.values():
        request.grow()
    world.submit()
    world.take(waiting)


def mixture(figures: Figures, seed: int) -> None:
    """A random run: any scenario at any time, on either kind of deadline."""
    random = Random(seed)
    world = World(seed=seed, settings=random.choice([IMPATIENT, SETTINGS, CRAMPED]))
    requests = [world.start(random.choice([0, 8, 150])) for _ in range(random.randint(1, 10))]
    scenarios = [*LATE.values(), *LOST.values()]
    for _ in range(30):
        if random.random() < 0.3:
            random.choice(scenarios)(world)
        if random.random() < 0.2:
            requests.append(world.start(random.choice([0, 150])))
        if random.random() < 0.2 and len(requests) > 1:
            world.release(requests.pop(random.randrange(len(requests))))
        if random.random() < 0.2:
            move_on(world, random.choice([0.0, 0.01]))
        world.server.service = random.choice([0.0, 0.004, 0.004, 0.05])
        world.step(depth=random.choice([0, 4, 4]))
    world.server.service = 0.004
    for link in world.channel.links.values():
        link.script.clear()
    resumed(world, requests, {r: r.drafts for r in requests}, "mixture", seed, figures, HEALING)
    figures.scenarios["random mixture"] += 1
    figures.add(world)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mixtures", type=int, default=300, help="random runs (default: %(default)s)")
    options = parser.parse_args()
    figures = Figures()
    for lost, scenarios in ((False, LATE), (True, LOST)):
        for name, scenario in scenarios.items():
            for at in range(STEPS):
                play(figures, name, scenario, at, lost)
    for seed in range(options.mixtures):
        mixture(figures, seed)

    for name, count in figures.scenarios.items():
        print(f"  {name:32} {count:5} runs")
    most = SETTINGS.reopen_in_flight
    bars = [
        ("stale applications", figures.stale, figures.stale == 0, "0"),
        ("longest wait past a deadline, s", figures.overrun, figures.overrun <= 1e-9, "0"),
        ("waits while the breaker was open", figures.waits_while_open, not figures.waits_while_open, "0"),
        ("opened again at once, at most", figures.reopening, 0 < figures.reopening <= most, f"{most}"),
        ("asked again before it caught up", figures.pressed, not figures.pressed, "0"),
        ("rules broken towards the server", figures.confused, not figures.confused, "0"),
        (
            "resumed in the same generation",
            figures.same_generation,
            not figures.wrong_generation,
            "all after late",
        ),
        (
            "resumed in a new generation",
            figures.new_generation,
            not figures.wrong_generation,
            "all after lost",
        ),
        ("not resumed in time", len(figures.not_resumed), not figures.not_resumed, "0"),
    ]
    for name, value, _, bar in bars:
        print(f"{name:36} {value:>8g}   bar: {bar}")
    print(f"{'slowest resumption, virtual s':36} {figures.slowest:>8.2f}")
    print(f"{sum(figures.scenarios.values())} runs, {figures.drafts} drafts applied")
    for line in (figures.wrong_generation + figures.not_resumed)[:10]:
        print(f"  {line}")
    return int(not all(holds for _, _, holds, _ in bars))


if __name__ == "__main__":
    sys.exit(main())
