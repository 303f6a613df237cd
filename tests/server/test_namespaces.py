"""Who finds whose context, with `sidedraft serve` as a process of its own and verifiers that come and go.

That a prefix was found is seen in what the draft was given (`rows_present`), as its rows are not sent again,
and in the server's own counts. One server serves all tests, each in namespaces of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from sidedraft.settings import VerifierSettings
from sidedraft.verifier.drafter import Drafter
from sidedraft.verifier.facts import VerifierFacts
from sidedraft.verifier.submission import Draft, Submission
from sidedraft.wire.messages import DraftFacts, TargetFacts
from support.checkpoints import tiny_draft, tiny_target
from support.serve_process import ServeProcess, wait_for

pytestmark = pytest.mark.slow

TAPS, HIDDEN, VOCAB, DEPTH = (1, 3), 32, 97, 3
PROMPT = 96
"""Six blocks."""
TOKENS = np.random.default_rng(0).integers(0, VOCAB, PROMPT + 32, dtype=np.int32)
ROWS = np.random.default_rng(1).standard_normal((PROMPT + 32, len(TAPS) * HIDDEN), dtype=np.float32)


NAMES = ("replicas", "left", "right", "adapters", "forks", "alone", "formats")


class Deployment:
    """A server, and verifiers of its tenants."""

    def __init__(self, server: ServeProcess, address: str) -> None:
        self.server = server
        self.address = address
        self._before: dict[str, int] = {}

    @contextmanager
    def verifier(self, namespace: str, *, sharing: bool = True, label: str = "engine") -> Iterator[Drafter]:
        settings = VerifierSettings(deadline=60.0, sharing=sharing)
        with Drafter(self.address, facts(namespace, label=label), settings) as drafter:
            assert drafter.wait_connected(60.0)
            yield drafter

    def begin(self) -> None:
        """Count from here on, once nobody holds anything any more: what is left is free, and findable."""
        wait_for(lambda: self._counts()["requests"] == 0)
        self._before = self._counts()

    def counts(self) -> dict[str, int]:
        """Of the engine, since `begin`."""
        return {name: count - self._before[name] for name, count in self._counts().items()}

    def _counts(self) -> dict[str, int]:
        _, status = self.server.get("/v1/status")
        found: dict[str, int] = status["counts"]["engine"]
        return found


def facts(namespace: str, **more: object) -> VerifierFacts:
    return VerifierFacts(
        target=TargetFacts(taps=TAPS, hidden_size=HIDDEN, vocab_size=VOCAB),
        draft=DraftFacts(family="dspark", layout="anchor", max_depth=DEPTH),
        max_position=4096,
        namespace=namespace,
        **more,  # type: ignore[arg-type]
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    folder = tmp_path_factory.mktemp("m")
    target = tiny_target(folder / "target", hidden=HIDDEN, vocab=VOCAB)
    draft = tiny_draft(folder / "draft", "dspark", target=target, taps=TAPS, max_depth=DEPTH)
    address = f"ipc://{folder}/s"
    words = ["--draft", str(draft), "--target", str(target), "--bind", address]
    words += ["--http", "127.0.0.1:0", "--kv-memory", "8MiB", "--threads", "1", "--skip-smoke-test"]
    words += [word for name in NAMES for word in ("--namespace", name)]
    with ServeProcess(folder, words) as process:
        process.wait_ready()
        yield Deployment(process, address)


@pytest.fixture
def deployment(server: Deployment) -> Deployment:
    server.begin()
    return server


def prompt(drafter: Drafter, name: object) -> Draft:
    """A request that states the prompt with its rows, and is drafted for."""
    return ask(drafter, Submission(name, 0, TOKENS[:PROMPT], int(TOKENS[PROMPT]), DEPTH, ROWS[:PROMPT]))


def resume(drafter: Drafter, name: object, **more: bytes) -> Draft:
    """One that states the same tokens as a prefix, and sends no row."""
    prefix, anchor = TOKENS[:PROMPT], int(TOKENS[PROMPT])
    return ask(drafter, Submission(name, PROMPT, [], anchor, DEPTH, prefix=prefix, **more))


def ask(drafter: Drafter, one: Submission) -> Draft:
    outcome = drafter.submit([one]).result()[one.request]
    assert isinstance(outcome, Draft), outcome
    return outcome


def same(one: Draft, other: Draft) -> bool:
    """The whole prompt was seen, and drafted from alike."""
    seen = {(draft.context_start, draft.rows_present) for draft in (one, other)}
    return seen == {(0, PROMPT)} and one.tokens.tolist() == other.tokens.tolist()


def test_replicas_and_restarts_of_a_deployment_share(deployment: Deployment) -> None:
    with deployment.verifier("replicas") as first:
        drafted = prompt(first, "a")
        with deployment.verifier("replicas", label="replica") as replica:
            assert same(resume(replica, "b"), drafted)
    wait_for(lambda: deployment.counts()["requests"] == 0)
    with deployment.verifier("replicas") as restarted:
        assert same(resume(restarted, "a"), drafted)
    counts = deployment.counts()
    assert counts["rows_computed"] == PROMPT
    assert counts["rows_restored"] == 2 * PROMPT


def test_tenants_do_not(deployment: Deployment) -> None:
    with deployment.verifier("left") as left, deployment.verifier("right") as right:
        drafted = prompt(left, "a")
        assert resume(right, "a").rows_present == 0
        assert deployment.counts()["rows_restored"] == 0
        assert same(prompt(right, "b"), drafted)
        assert deployment.counts()["rows_computed"] == 2 * PROMPT
        assert same(resume(right, "c"), drafted), "each finds its own"


def test_a_name_that_the_server_does_not_serve_gets_no_session(deployment: Deployment) -> None:
    with Drafter(deployment.address, facts("third")) as drafter:
        wait_for(lambda: "namespace" in drafter.status().refusal)
        assert not drafter.connected


def test_within_a_tenant_another_adapter_shares_nothing(deployment: Deployment) -> None:
    with deployment.verifier("adapters") as drafter:
        prompt(drafter, "a")
        assert resume(drafter, "b", context_key=b"adapter").rows_present == 0


def test_forks_hold_one_prefix_and_part_where_their_tokens_do(deployment: Deployment) -> None:
    with deployment.verifier("forks") as drafter:
        drafted = prompt(drafter, 0)
        held = deployment.counts()["blocks_held"]
        forks = range(1, 5)
        for fork in forks:
            assert same(resume(drafter, fork), drafted)
        assert deployment.counts()["blocks_held"] == held, "one copy for all of them"
        endings = [
            Submission(
                fork,
                PROMPT,
                [(fork * 7 + place) % VOCAB for place in range(20)],
                int(TOKENS[0]),
                DEPTH,
                ROWS[PROMPT : PROMPT + 20] * fork,
            )
            for fork in forks
        ]
        drafts = list(drafter.submit(endings).result().values())
        assert all(isinstance(draft, Draft) and draft.rows_present == PROMPT + 20 for draft in drafts)
        assert deployment.counts()["rows_computed"] == PROMPT + 4 * 20


def test_without_sharing_nothing_is_found_and_nothing_is_left_to_find(deployment: Deployment) -> None:
    with deployment.verifier("alone", sharing=False) as alone:
        prompt(alone, "a")
        assert resume(alone, "b").rows_present == 0, "not even its own"
    wait_for(lambda: deployment.counts()["requests"] == 0)
    assert deployment.counts()["index"] == 0
    with deployment.verifier("alone") as other:
        assert resume(other, "a").rows_present == 0
        drafted = prompt(other, "b")
        assert same(resume(other, "c"), drafted)
    with deployment.verifier("alone", sharing=False) as alone:
        assert resume(alone, "a").rows_present == 0


def test_rows_of_another_format_are_not_found(deployment: Deployment) -> None:
    with deployment.verifier("formats") as exact:
        prompt(exact, "a")
        settings = VerifierSettings(deadline=60.0)
        with Drafter(deployment.address, facts("formats", row_formats=("fp8",)), settings) as coarse:
            assert coarse.wait_connected(60.0)
            assert resume(coarse, "a").rows_present == 0
