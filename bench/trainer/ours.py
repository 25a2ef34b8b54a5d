"""The embedded trainer on the same work, its phases, and the arithmetic that no implementation can avoid."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from bench.trainer.workload import GROUP, MAX_TOKENS, RECIPE, SumWorld
from evotrainer.trainers.base import Identity, TrainRequest
from evotrainer.trainers.clock import cpu_now
from evotrainer.trainers.embedded import packing
from evotrainer.trainers.embedded.folder import load_policy
from evotrainer.trainers.embedded.packing import TrainRow, pack
from evotrainer.trainers.embedded.sampler import Samples, SamplingParams, sample
from evotrainer.trainers.embedded.shape import DecoderShape
from evotrainer.trainers.embedded.tokenizer import BOS, EOS
from evotrainer.trainers.embedded.trainer import EmbeddedTrainer


def our_steps(folder: Path, steps: int, out: Path) -> list[dict[str, float]]:
    """Curve entries with the CPU-seconds of each whole step added as `step_s`."""
    shutil.rmtree(out, ignore_errors=True)
    marks: list[dict[str, float]] = []
    last = [0.0]

    def on_step(entry: dict[str, float]) -> None:
        now = cpu_now()
        marks.append(entry | {"step_s": now - last[0]})
        last[0] = now

    request = TrainRequest(
        Identity("bench", "b0", 1), RECIPE.with_factor("steps", steps), folder, out, checkpoint_every=steps + 1
    )
    last[0] = cpu_now()
    EmbeddedTrainer().train(request, SumWorld(), lambda r: None, on_step)
    return marks


def our_sampling(folder: Path, prompts: list[str], fixed: int | None, share: bool = True) -> Callable[[], int]:
    """A function that samples GROUP completions of each prompt and returns the number of tokens.

    `share` false: every rollout by itself, as if prompts differed.
    """
    loaded = load_policy(folder)
    ids = [(BOS, *loaded.tokenizer.encode(p)) for p in prompts]
    if not share:
        ids = [x for x in ids for _ in range(GROUP)]
    params = SamplingParams(fixed or MAX_TOKENS, stops=() if fixed else (EOS,))

    def run() -> int:
        s = sample(loaded.policy, ids, GROUP if share else 1, params, torch.Generator().manual_seed(0))
        return int(s.lengths.sum())

    return run


@contextmanager
def unmerged() -> Iterator[None]:
    """Rows keep their own nodes even where they begin alike."""
    original = packing._shared
    packing._shared = lambda a, b: -1  # type: ignore[assignment]
    try:
        yield
    finally:
        packing._shared = original  # type: ignore[assignment]


def unique_share(folder: Path, prompts: list[str]) -> tuple[int, int, Samples]:
    """(sampled tokens, distinct beginnings among them, the samples) of one batch."""
    loaded = load_policy(folder)
    ids = [(BOS, *loaded.tokenizer.encode(p)) for p in prompts]
    s = sample(loaded.policy, ids, GROUP, SamplingParams(MAX_TOKENS), torch.Generator().manual_seed(0))
    rows = [TrainRow(i, ids[i // GROUP], tuple(s.tokens[i, :n].tolist())) for i, n in enumerate(s.lengths.tolist())]
    b = pack(rows, loaded.policy.shape)
    return int(s.lengths.sum()), b.tokens.shape[0] - b.n_prefix, s


def gemm_rate(shape: DecoderShape, rows: int) -> float:
    """FLOP per CPU-second of this policy's projections at `rows` rows, one thread."""
    d, width = shape.d, shape.qkv_heads * shape.head_dim
    sizes = [(d, width), (d, d), (d, 2 * shape.hidden), (shape.hidden, d)]
    flops = seconds = 0.0
    for k, n in sizes:
        x, w = torch.randn(rows, k), torch.randn(n, k)
        repeat = max(3, int(2e8 / (2 * rows * k * n)))
        best = float("inf")
        for _ in range(5):
            start = cpu_now()
            for _ in range(repeat):
                x @ w.t()
            best = min(best, (cpu_now() - start) / repeat)
        flops += 2 * rows * k * n
        seconds += best
    return flops / seconds
