"""Rows that travel: of a 32k-token prompt under a 2k window at most 1/12 of the bytes of all rows, with the
same proposals; K3-shaped rows (6 taps x 7168) projected in fp8 at most 1/11 of raw bf16.

Real server processes, and the verifier's own count of payload bytes, token ids included. The window: two
servers of one draft, both with `--window 2048`; one keeps what its proposals see, the other every row
(`--retain all`). K3's shape: a draft of K3's width with one layer, as only its projection matters here.
"""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "2"

import json
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from sidedraft.cli.server_process import serving
from sidedraft.drafts import load_projection, read_config
from sidedraft.settings import VerifierSettings
from sidedraft.targets.facts import read_target_facts
from sidedraft.verifier.drafter import Drafter
from sidedraft.verifier.facts import VerifierFacts
from sidedraft.verifier.submission import Draft, Rows, Submission
from sidedraft.wire.messages import DraftFacts
from support.checkpoints import tiny_draft, tiny_target, write_checkpoint

PROMPT, WINDOW, CHUNK, DECODED = 32_768, 2048, 1024, 8
WINDOW_BAR, PROJECTED_BAR = 1 / 12, 1 / 11
TOLERANCE = 2e-4
DEPTH = 4
VOCAB = 512
K3_WIDTH, K3_TAPS, K3_ROWS = 7168, (1, 2, 3, 4, 5, 6), 96
PATIENT = {"deadline": 120.0, "late_lost": 120.0}


@dataclass
class Sent:
    """What one verifier sent, and what it got for it."""

    payload: int
    rows: int
    skipped: int
    drafts: list[Draft]


def verifier(
    address: str, draft_dir: Path, target: Path, kinds: tuple[str, ...], projected: bool = False
) -> Drafter:
    config = read_config(draft_dir)
    facts = VerifierFacts(
        target=read_target_facts(target, config.taps),
        draft=DraftFacts(family=config.family, layout=config.layout.value, max_depth=config.max_depth),
        max_position=PROMPT + 1024,
        row_formats=kinds,
        projection=load_projection(draft_dir, dtype=torch.bfloat16) if projected else None,
    )
    return Drafter(address, facts, VerifierSettings(**PATIENT))


def state(drafter: Drafter, tokens: np.ndarray, rows: Rows, prompt: int, chunk: int) -> Sent:
    """A prompt in chunks, then a token a step; a draft wanted from the prompt's end on."""
    if not drafter.wait_connected(60):
        raise SystemExit(f"no session with the server: {drafter.status().refusal}")
    drafts = []
    spans = [(low, min(low + chunk, prompt)) for low in range(0, prompt, chunk)]
    spans += [(at, at + 1) for at in range(prompt, len(tokens) - 1)]
    for first, end in spans:
        one = Submission(
            request="x",
            first=first,
            tokens=tokens[first:end],
            next_token=int(tokens[end]),
            depth=DEPTH if end >= prompt else 0,
            rows=rows[first:end],
            horizon=prompt,
        )
        outcome = drafter.submit([one]).result()["x"]
        if end >= prompt:
            if not isinstance(outcome, Draft):
                raise SystemExit(f"no draft at {end}: {outcome}")
            drafts.append(outcome)
    counters = drafter.status().counters
    payload = counters["bytes_control"] + counters["bytes_bulk"]
    if counters["rows_dropped"]:
        raise SystemExit(f"{counters['rows_dropped']} rows were dropped: bytes say nothing")
    return Sent(payload, counters["rows_sent"], counters["rows_skipped"], drafts)


def window(folder: Path) -> bool:
    """Whether it fell short."""
    target = tiny_target(folder / "target", hidden=256, vocab=4096)
    draft = tiny_draft(
        folder / "draft",
        "dspark",
        target=target,
        taps=(1, 2, 3, 4, 5),
        heads=8,
        head_dim=32,
        max_depth=DEPTH,
        overrides={"max_position_embeddings": 40_960},
    )
    generator = np.random.default_rng(0)
    tokens = generator.integers(0, 4096, PROMPT + DECODED + 1, dtype=np.int32)
    rows = torch.randn(PROMPT + DECODED, 5 * 256, generator=torch.Generator().manual_seed(0)).bfloat16()
    found = {}
    for retain in ("window", "all"):
        flags = ("--window", str(WINDOW), "--retain", retain, "--kv-memory", "512MiB", "--max-requests", "4")
        with serving(draft, target, (*flags, "--skip-smoke-test")) as server:
            server.wait_ready(120)
            with verifier(server.address, draft, target, ("bf16",)) as drafter:
                found[retain] = state(drafter, tokens, rows, PROMPT, CHUNK)
    few, every = found["window"], found["all"]
    ratio = few.payload / every.payload
    pairs = list(zip(few.drafts, every.drafts, strict=True))
    alike = sum(a.tokens.tolist() == b.tokens.tolist() for a, b in pairs)
    far = max(float(np.abs(a.confidence - b.confidence).max()) for a, b in pairs)
    print(
        f"{PROMPT:,}-token prompt, window {WINDOW:,}: {few.payload:,} bytes ({few.rows:,} rows, "
        f"{few.skipped:,} skipped) of {every.payload:,} ({every.rows:,} rows): {ratio:.4f} "
        f"(bar: {WINDOW_BAR:.4f})"
    )
    print(f"  proposals equal: {alike} of {len(pairs)}; confidences within {far:.1e} (bar: {TOLERANCE:.0e})")
    seen = {a.rows_present for a, _ in pairs} | {b.rows_present for _, b in pairs}
    print(f"  context rows seen by each: {sorted(seen)}")
    return ratio > WINDOW_BAR or alike < len(pairs) or far > TOLERANCE or seen != {WINDOW - 1}


def wide_target(folder: Path) -> Path:
    """Of K3's width, as far as a server or a verifier reads a target: its config and its embedding."""
    tiny_target(folder, vocab=VOCAB)
    config = json.loads((folder / "config.json").read_text()) | {"hidden_size": K3_WIDTH}
    embedding = torch.randn(VOCAB, K3_WIDTH, generator=torch.Generator().manual_seed(0))
    write_checkpoint(folder, config, {"model.embed_tokens.weight": embedding})
    return folder


def projected(folder: Path) -> bool:
    """Whether it fell short."""
    target = wide_target(folder / "target")
    draft = tiny_draft(
        folder / "draft",
        "dspark",
        target=target,
        taps=K3_TAPS,
        layers=1,
        heads=8,
        head_dim=64,
        max_depth=DEPTH,
    )
    generator = np.random.default_rng(0)
    tokens = generator.integers(0, VOCAB, K3_ROWS + DECODED + 1, dtype=np.int32)
    rows = torch.randn(K3_ROWS + DECODED, len(K3_TAPS) * K3_WIDTH).bfloat16()
    found = {}
    flags = ("--kv-memory", "64MiB", "--max-requests", "2", "--dtype", "bfloat16", "--skip-smoke-test")
    with serving(draft, target, flags) as server:
        server.wait_ready(240)
        for kind in ("bf16", "projected-fp8"):
            with verifier(server.address, draft, target, (kind,), kind != "bf16") as drafter:
                found[kind] = state(drafter, tokens, rows, K3_ROWS, K3_ROWS)
                status = drafter.status()
                if status.agreement is None or status.agreement.row_format.kind != kind:
                    raise SystemExit(f"{kind} was not agreed on")
    raw, small = found["bf16"], found["projected-fp8"]
    ratio = small.payload / raw.payload
    print(
        f"K3-shaped, {raw.rows} rows: {small.payload / small.rows:,.0f} bytes a row as projected-fp8, "
        f"{raw.payload / raw.rows:,.0f} raw: {ratio:.4f} (bar: {PROJECTED_BAR:.4f})"
    )
    return ratio > PROJECTED_BAR or small.rows != raw.rows


def main() -> int:
    torch.set_num_threads(2)
    short = False
    for part in (window, projected):
        with tempfile.TemporaryDirectory() as folder:
            short |= part(Path(folder))
    return int(short)


if __name__ == "__main__":
    sys.exit(main())
